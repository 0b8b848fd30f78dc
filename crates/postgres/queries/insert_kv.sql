INSERT INTO kv (key, value, expires_at)
SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bigint[]) AS record (key, value, expires_at) ORDER BY record.key
