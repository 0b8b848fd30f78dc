-- The items asked for: ranges of numbers, and the numbers of chosen ids.
WITH asked (low, high) AS (
    SELECT * FROM unnest($1::bigint[], $2::bigint[])
    UNION ALL
    SELECT chosen.seq, chosen.seq FROM chosen_ids chosen WHERE chosen.id = ANY ($3::uuid[])
)
