SELECT first_seq, last_seq, queue, items FROM lock_ready_pages($1, $2, $3, $4, $5)
