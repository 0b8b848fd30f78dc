UPDATE kv SET value = record.value, expires_at = record.expires_at
FROM unnest($1::bytea[], $2::bytea[], $3::bigint[]) AS record (key, value, expires_at)
WHERE kv.key = record.key
