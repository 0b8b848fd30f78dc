SELECT min(remove_at) FROM terminal_pages
