SELECT position, id, queue, priority, ready_at, idempotency_key, params::text, tags::text, inputs::text, payload,
       item_group, fairness_key, source, parent, max_retries, expire_after
FROM inbox
WHERE position = ANY ($1::bigint[])
ORDER BY position
