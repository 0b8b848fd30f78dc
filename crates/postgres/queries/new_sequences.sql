SELECT new_sequences($1, $2)
