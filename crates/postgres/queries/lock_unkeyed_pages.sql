SELECT first_seq, last_seq, queue, items FROM lock_unkeyed_pages($1, $2)
