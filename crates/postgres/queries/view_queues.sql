-- What became ready since it was counted is few: it is counted anew, from where it stands in the order of time.
SELECT queue.definition,
       coalesce(sum(pending), 0)::bigint, coalesce(sum(counters.scheduled), 0)::bigint, coalesce(sum(processing), 0)::bigint,
       coalesce(sum(paused), 0)::bigint, coalesce(sum(completed), 0)::bigint, coalesce(sum(failed), 0)::bigint,
       coalesce((
           SELECT sum(pages.scheduled) FROM pages
           WHERE pages.wake <= $1 AND pages.due <= $1 AND pages.queue = queue.id
       ), 0)::bigint
FROM (
    SELECT id, name, definition FROM queues
    WHERE definition IS NOT NULL AND name > $2::text COLLATE "C" AND ($3::text IS NULL OR name = $3)
    ORDER BY name
    LIMIT $4
) AS queue
LEFT JOIN counters ON counters.queue = queue.id
GROUP BY queue.id, queue.name, queue.definition
ORDER BY queue.name
