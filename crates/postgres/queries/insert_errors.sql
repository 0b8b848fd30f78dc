INSERT INTO errors (seq, revision, error) SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[])
