-- What became ready since it was counted is few: it is counted anew, from where it stands in the order of time.
SELECT queue.definition,
       coalesce(sum(pending), 0)::bigint, coalesce(sum(counters.scheduled), 0)::bigint, coalesce(sum(processing), 0)::bigint,
       coalesce(sum(paused), 0)::bigint, coalesce(sum(completed), 0)::bigint, coalesce(sum(failed), 0)::bigint,
       coalesce((
           SELECT sum(pages.scheduled) FROM pages
           WHERE pages.wake <= $1 AND pages.due <= $1 AND pages.queue = queue.id
       ), 0)::bigint,
       -- The first of each rank, from one rank to the next, and what is not counted as ready yet. The places of a queue in
       -- the order of scores, whose order is an object, are no times of being ready.
       CASE WHEN jsonb_typeof(queue.definition::jsonb #> '{policy,order}') <> 'object' THEN least(
           (
               WITH RECURSIVE firsts AS (
                   (
                       SELECT rank, place FROM pages
                       WHERE pages.queue = queue.id AND rank IS NOT NULL
                       ORDER BY rank, place, foremost
                       LIMIT 1
                   )
                   UNION ALL
                   SELECT later.rank, later.place
                   FROM firsts CROSS JOIN LATERAL (
                       SELECT pages.rank, pages.place FROM pages
                       WHERE pages.queue = queue.id AND pages.rank > firsts.rank
                       ORDER BY pages.rank, pages.place, pages.foremost
                       LIMIT 1
                   ) AS later
               )
               SELECT min(place) FROM firsts
           ),
           (
               SELECT min(pages.due) FROM pages
               WHERE pages.wake <= $1 AND pages.due <= $1 AND pages.queue = queue.id
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
