-- The pages that hold items with numbers in these ranges, or with these chosen ids.
WHERE first_seq = ANY (ARRAY(
    SELECT page.first_seq
    FROM (
        SELECT * FROM unnest($1::bigint[], $2::bigint[])
        UNION ALL
        SELECT chosen.seq, chosen.seq FROM chosen_ids chosen WHERE chosen.id = ANY ($3::uuid[])
    ) AS asked (low, high)
    CROSS JOIN LATERAL (
        SELECT first_seq FROM (
            SELECT first_seq, last_seq FROM pages
            WHERE first_seq <= asked.low ORDER BY first_seq DESC LIMIT 1
        ) AS page_at_low
        WHERE last_seq >= asked.low
        UNION ALL
        SELECT first_seq FROM pages WHERE first_seq > asked.low AND first_seq <= asked.high
    ) AS page
))
