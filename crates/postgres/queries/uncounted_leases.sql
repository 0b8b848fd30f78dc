-- Pages of a queue that may hold items in hand, which nobody has counted: what is in hand has a time, and is neither ready nor scheduled.
SELECT first_seq, last_seq, queue, heads FROM pages
WHERE queue = $1 AND wake IS NOT NULL AND leased IS NULL AND ready + scheduled < last_seq - first_seq + 1
ORDER BY first_seq
FOR UPDATE
