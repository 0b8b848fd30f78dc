SELECT first_seq, last_seq, queue, heads FROM without_key($1, $2)
