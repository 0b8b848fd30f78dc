-- Moves the counts of one shard to the next.
WITH old AS (
    DELETE FROM counters WHERE (queue, shard) IN (
        SELECT queue, shard FROM counters WHERE shard = $1 ORDER BY queue FOR UPDATE
    )
    RETURNING *
)
INSERT INTO counters (shard, queue, pending, scheduled, processing, paused, completed, failed)
SELECT $2::integer, queue, pending, scheduled, processing, paused, completed, failed FROM old
ORDER BY queue
