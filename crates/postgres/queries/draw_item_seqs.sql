SELECT draw_item_seqs($1, $2)
