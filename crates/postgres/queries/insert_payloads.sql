INSERT INTO payloads (partition, first_seq, last_seq, bytes)
SELECT * FROM unnest($1::smallint[], $2::bigint[], $3::bigint[], $4::bytea[])
