SELECT first_seq, last_seq, queue, heads FROM pages
