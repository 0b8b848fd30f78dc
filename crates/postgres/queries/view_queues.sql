-- Items that became ready since the counters were written still count as scheduled. The column behind the counts says how
-- many they are. They are few, and the index by wake-up time finds them.
SELECT queue.definition,
       coalesce(sum(pending), 0)::bigint, coalesce(sum(counters.scheduled), 0)::bigint, coalesce(sum(processing), 0)::bigint,
       coalesce(sum(paused), 0)::bigint, coalesce(sum(completed), 0)::bigint, coalesce(sum(failed), 0)::bigint,
       coalesce((
           SELECT sum(pages.scheduled_count) FROM pages
           WHERE pages.wake_at <= $1 AND pages.ready_at <= $1 AND pages.queue = queue.id
       ), 0)::bigint,
       -- When the oldest ready item became ready: the first page of each rank, and pages that still count as scheduled. NULL
       -- for a queue ordered by scores, whose `order_time` is no time. Its order is a JSON object.
       CASE WHEN jsonb_typeof(queue.definition::jsonb #> '{policy,order}') <> 'object' THEN least(
           (
               WITH RECURSIVE firsts AS (
                   (
                       SELECT order_rank, order_time FROM pages
                       WHERE pages.queue = queue.id AND order_rank IS NOT NULL
                       ORDER BY order_rank, order_time, order_seq
                       LIMIT 1
                   )
                   UNION ALL
                   SELECT later.order_rank, later.order_time
                   FROM firsts CROSS JOIN LATERAL (
                       SELECT pages.order_rank, pages.order_time FROM pages
                       WHERE pages.queue = queue.id AND pages.order_rank > firsts.order_rank
                       ORDER BY pages.order_rank, pages.order_time, pages.order_seq
                       LIMIT 1
                   ) AS later
               )
               SELECT min(order_time) FROM firsts
           ),
           (
               SELECT min(pages.ready_at) FROM pages
               WHERE pages.wake_at <= $1 AND pages.ready_at <= $1 AND pages.queue = queue.id
           )
       ) END
FROM (
    SELECT id, name, definition FROM queues
    WHERE definition IS NOT NULL AND name > $2::text COLLATE "C" AND ($3::text IS NULL OR name = $3)
    ORDER BY name
    LIMIT $4
) AS queue
LEFT JOIN counters ON counters.queue = queue.id
GROUP BY queue.id, queue.name, queue.definition
ORDER BY queue.name
