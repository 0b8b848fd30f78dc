SELECT has_receivable_key($1, $2)
