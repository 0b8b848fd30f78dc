-- Never waits. `$1` is NULL where the database's clock counts, which is asked once.
DELETE FROM tallies WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM tallies
    WHERE hour < (SELECT (coalesce($1, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) - $3::bigint) / 3600000)
    ORDER BY hour
    LIMIT $2
    FOR UPDATE SKIP LOCKED
))
