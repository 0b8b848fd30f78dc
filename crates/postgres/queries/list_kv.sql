-- A key is text and contains no byte ff: all keys with a prefix are less than the prefix followed by ff.
SELECT key, value, expires_at FROM kv
WHERE key >= $1::bytea
    AND ($2::boolean OR key > $1::bytea)
    AND key < $3::bytea || '\xff'::bytea
    AND (expires_at IS NULL OR expires_at > $4::bigint)
ORDER BY key
LIMIT $5::bigint
