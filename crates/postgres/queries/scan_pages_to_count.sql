-- Like `scan_pages`. With `$3`, a page whose items are all completed, or all failed, comes with their number instead of
-- the items.
(
    SELECT first_seq, last_seq, queue, items, NULL::smallint, 0, 0 FROM pages
    WHERE last_seq > $1
      AND first_seq >= coalesce((SELECT first_seq FROM pages WHERE first_seq <= $1 ORDER BY first_seq DESC LIMIT 1), 0)
    ORDER BY first_seq
    LIMIT $2
)
UNION ALL
(
    SELECT first_seq, last_seq, queue,
           CASE WHEN $3 AND first_seq > $1 AND (completed_count = 0 OR failed_count = 0) THEN NULL ELSE items END,
           partition, completed_count, failed_count
    FROM terminal_pages
    WHERE last_seq > $1
      AND first_seq >= coalesce(
          (SELECT first_seq FROM terminal_pages WHERE first_seq <= $1 ORDER BY first_seq DESC LIMIT 1), 0
      )
    ORDER BY first_seq
    LIMIT $2
)
ORDER BY first_seq
LIMIT $2
