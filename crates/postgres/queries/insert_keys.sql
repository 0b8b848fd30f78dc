-- In one order everywhere: two batches that want the same keys cannot wait in a circle.
INSERT INTO keys (queue, key, seq, id, content)
SELECT * FROM unnest($1::integer[], $2::bytea[], $3::bigint[], $4::uuid[], $5::bytea[])
    AS claim (queue, key, seq, id, content)
ORDER BY claim.queue, claim.key
