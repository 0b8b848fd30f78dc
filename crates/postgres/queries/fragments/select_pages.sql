SELECT first_seq, last_seq, queue, items FROM pages
