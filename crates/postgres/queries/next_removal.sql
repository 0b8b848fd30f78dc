SELECT min(remove_at) FROM finished
