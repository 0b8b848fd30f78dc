SELECT nextval('item_sequence') FROM generate_series(1, $1)
