-- Blocks, in order of submission: whoever locks several items this way cannot wait in a circle.
WHERE seq = ANY (ARRAY(
    SELECT unnest($1::bigint[])
    UNION
    SELECT chosen.seq FROM chosen_ids chosen WHERE chosen.id = ANY ($2::uuid[])
))
ORDER BY seq
FOR UPDATE
