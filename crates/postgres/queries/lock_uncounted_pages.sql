-- Pages of a queue that may hold processing items which no `leased_count` includes. A processing item has a deadline, and
-- is neither ready nor scheduled.
SELECT first_seq, last_seq, queue, items FROM pages
WHERE queue = $1 AND wake_at IS NOT NULL AND leased_count IS NULL
  AND ready_count + scheduled_count < last_seq - first_seq + 1
ORDER BY first_seq
FOR UPDATE
