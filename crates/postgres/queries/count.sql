INSERT INTO counters (shard, queue, pending, scheduled, processing, paused, completed, failed)
SELECT $1::integer, * FROM unnest(
    $2::integer[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[]
) AS change (queue, pending, scheduled, processing, paused, completed, failed)
ORDER BY change.queue
ON CONFLICT (queue, shard) DO UPDATE SET
    pending = counters.pending + excluded.pending,
    scheduled = counters.scheduled + excluded.scheduled,
    processing = counters.processing + excluded.processing,
    paused = counters.paused + excluded.paused,
    completed = counters.completed + excluded.completed,
    failed = counters.failed + excluded.failed
