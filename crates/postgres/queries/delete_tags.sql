DELETE FROM tags WHERE seq = ANY ($1::bigint[])
