-- Skips rows that another transaction has locked. `$1` is NULL if the database's clock decides; it is read once.
DELETE FROM tallies WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM tallies
    WHERE hour < (SELECT (coalesce($1, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) - $3::bigint) / 3600000)
    ORDER BY hour
    LIMIT $2
    FOR UPDATE SKIP LOCKED
))
