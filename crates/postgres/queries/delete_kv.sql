DELETE FROM kv WHERE key = ANY ($1::bytea[])
