INSERT INTO bodies (slot, first_seq, last_seq, blob)
SELECT * FROM unnest($1::smallint[], $2::bigint[], $3::bigint[], $4::bytea[])
