-- Pages in order of submission, from the one that may hold the item behind `$1`.
(
    SELECT first_seq, last_seq, queue, items, NULL::smallint FROM pages
    WHERE last_seq > $1
      AND first_seq >= coalesce((SELECT first_seq FROM pages WHERE first_seq <= $1 ORDER BY first_seq DESC LIMIT 1), 0)
    ORDER BY first_seq
    LIMIT $2
)
UNION ALL
(
    SELECT first_seq, last_seq, queue, items, partition FROM terminal_pages
    WHERE last_seq > $1
      AND first_seq >= coalesce(
          (SELECT first_seq FROM terminal_pages WHERE first_seq <= $1 ORDER BY first_seq DESC LIMIT 1), 0
      )
    ORDER BY first_seq
    LIMIT $2
)
ORDER BY first_seq
LIMIT $2
