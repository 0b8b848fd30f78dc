-- What a shard holds goes to the next.
WITH old AS (
    DELETE FROM counters WHERE (queue, shard) IN (
        SELECT queue, shard FROM counters WHERE shard = $1 ORDER BY queue FOR UPDATE
    )
    RETURNING *
)
INSERT INTO counters (shard, queue, pending, scheduled, processing, paused, completed, failed)
SELECT $2::integer, queue, pending, scheduled, processing, paused, completed, failed FROM old
ORDER BY queue
ON CONFLICT (queue, shard) DO UPDATE SET
    pending = counters.pending + excluded.pending,
    scheduled = counters.scheduled + excluded.scheduled,
    processing = counters.processing + excluded.processing,
    paused = counters.paused + excluded.paused,
    completed = counters.completed + excluded.completed,
    failed = counters.failed + excluded.failed
