SELECT first_seq, last_seq, queue, items, partition FROM terminal_pages
