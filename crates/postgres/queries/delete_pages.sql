DELETE FROM pages WHERE first_seq = ANY ($1::bigint[])
