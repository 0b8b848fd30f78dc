INSERT INTO chosen_ids (id, seq)
SELECT * FROM unnest($1::uuid[], $2::bigint[]) AS chosen (id, seq) ORDER BY chosen.id
