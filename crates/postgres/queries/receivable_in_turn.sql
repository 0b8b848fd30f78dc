SELECT first_seq, last_seq, queue, heads FROM receivable_in_turn($1, $2, $3, $4, $5, $6, $7)
