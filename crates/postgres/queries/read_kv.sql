SELECT key, value, expires_at FROM kv WHERE key = ANY ($1::bytea[])
