-- The page that the first asked item may be in, and the pages that begin behind it.
WHERE first_seq = ANY (ARRAY(
    SELECT page.first_seq
    FROM asked
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
