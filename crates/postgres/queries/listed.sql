-- From the page that may hold the item after this one on, in order of submission.
(
    SELECT first_seq, last_seq, queue, heads, NULL::smallint FROM pages
    WHERE last_seq > $1
      AND first_seq >= coalesce((SELECT first_seq FROM pages WHERE first_seq <= $1 ORDER BY first_seq DESC LIMIT 1), 0)
    ORDER BY first_seq
    LIMIT $2
)
UNION ALL
(
    SELECT first_seq, last_seq, queue, heads, slot FROM finished
    WHERE last_seq > $1
      AND first_seq >= coalesce((SELECT first_seq FROM finished WHERE first_seq <= $1 ORDER BY first_seq DESC LIMIT 1), 0)
    ORDER BY first_seq
    LIMIT $2
)
ORDER BY first_seq
LIMIT $2
