ON CONFLICT (queue, shard) DO UPDATE SET
    pending = counters.pending + excluded.pending,
    scheduled = counters.scheduled + excluded.scheduled,
    processing = counters.processing + excluded.processing,
    paused = counters.paused + excluded.paused,
    completed = counters.completed + excluded.completed,
    failed = counters.failed + excluded.failed
