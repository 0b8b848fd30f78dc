-- Skips rows that another transaction has locked. `$1` is NULL if the database's clock decides; it is read once.
DELETE FROM kv WHERE key = ANY (ARRAY(
    SELECT key FROM kv
    WHERE expires_at <= (SELECT coalesce($1, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint))
    ORDER BY expires_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED
))
