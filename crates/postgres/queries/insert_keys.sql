-- Sorted: all batches insert keys in this order, so no two of them wait for each other.
INSERT INTO keys (queue, key, seq, id, content_digest, freed)
SELECT * FROM unnest($1::integer[], $2::bytea[], $3::bigint[], $4::uuid[], $5::bytea[], $6::boolean[])
    AS claim (queue, key, seq, id, content_digest, freed)
ORDER BY claim.queue, claim.key
