INSERT INTO bodies (seq, body, state_blob, blob, metadata, parameters)
SELECT * FROM unnest($1::bigint[], $2::text[], $3::bytea[], $4::bytea[], $5::bytea[], $6::bytea[])
