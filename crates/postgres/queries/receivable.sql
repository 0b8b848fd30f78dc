SELECT first_seq, last_seq, queue, heads FROM receivable($1, $2, $3, $4, $5)
