SELECT first_seq, last_seq, queue, heads, slot FROM finished
