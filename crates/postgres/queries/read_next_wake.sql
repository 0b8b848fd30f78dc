SELECT least(
    (SELECT min(wake_at) FROM pages WHERE wake_at > $1),
    (SELECT min(remove_at) FROM terminal_pages)
)
