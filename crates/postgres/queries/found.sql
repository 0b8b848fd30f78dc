WHERE seq = ANY (ARRAY(
    SELECT unnest($1::bigint[])
    UNION
    SELECT chosen.seq FROM chosen_ids chosen WHERE chosen.id = ANY ($2::uuid[])
))
