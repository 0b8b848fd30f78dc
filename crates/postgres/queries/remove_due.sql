-- Finished pages whose time has come: they go whole, unread. Never waits.
WITH doomed AS (
    SELECT slot, first_seq FROM finished
    WHERE remove_at <= (SELECT coalesce($1, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint))
    ORDER BY remove_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED
)
DELETE FROM finished USING doomed
WHERE finished.slot = doomed.slot AND finished.first_seq = doomed.first_seq
RETURNING finished.queue, finished.completed, finished.failed, finished.side, finished.first_seq, finished.last_seq
