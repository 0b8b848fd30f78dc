-- As `listed`, but of pages that are all completed, or all failed, how many items they hold may be enough.
(
    SELECT first_seq, last_seq, queue, heads, NULL::smallint, 0, 0 FROM pages
    WHERE last_seq > $1
      AND first_seq >= coalesce((SELECT first_seq FROM pages WHERE first_seq <= $1 ORDER BY first_seq DESC LIMIT 1), 0)
    ORDER BY first_seq
    LIMIT $2
)
UNION ALL
(
    SELECT first_seq, last_seq, queue,
           CASE WHEN $3 AND first_seq > $1 AND (completed = 0 OR failed = 0) THEN NULL ELSE heads END,
           slot, completed, failed
    FROM finished
    WHERE last_seq > $1
      AND first_seq >= coalesce((SELECT first_seq FROM finished WHERE first_seq <= $1 ORDER BY first_seq DESC LIMIT 1), 0)
    ORDER BY first_seq
    LIMIT $2
)
ORDER BY first_seq
LIMIT $2
