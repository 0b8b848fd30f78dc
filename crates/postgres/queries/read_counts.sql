SELECT queue, sum(pending)::bigint, sum(scheduled)::bigint, sum(processing)::bigint, sum(paused)::bigint,
       sum(completed)::bigint, sum(failed)::bigint
FROM counters
WHERE queue = ANY ($1::integer[])
GROUP BY queue
