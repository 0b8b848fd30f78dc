SELECT is_receivable_in_turn($1, $2)
