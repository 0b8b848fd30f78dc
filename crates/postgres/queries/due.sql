-- Never waits. `$2` is NULL where the database's clock counts.
WHERE wake > $1 AND wake <= coalesce($2, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
ORDER BY wake, seq
LIMIT $3
FOR UPDATE SKIP LOCKED
