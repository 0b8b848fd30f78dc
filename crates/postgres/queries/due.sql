-- Never waits. `$2` is NULL where the database's clock counts, which is asked once: compared with each row, it would keep
-- the index from being used.
WHERE wake > $1 AND wake <= (SELECT coalesce($2, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint))
ORDER BY wake, seq
LIMIT $3
FOR UPDATE SKIP LOCKED
