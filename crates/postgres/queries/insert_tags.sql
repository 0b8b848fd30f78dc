INSERT INTO tags (seq, name, value) SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bytea[])
