-- A key is text: no byte of it is ff, so all keys with a prefix lie before the prefix with that byte behind it.
SELECT key, value, expires_at FROM kv
WHERE key >= $1::bytea
    AND ($2::boolean OR key > $1::bytea)
    AND key < $3::bytea || '\xff'::bytea
    AND (expires_at IS NULL OR expires_at > $4::bigint)
ORDER BY key
LIMIT $5::bigint
