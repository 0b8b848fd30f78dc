SELECT least(
    (SELECT min(wake) FROM pages WHERE wake > $1),
    (SELECT min(remove_at) FROM finished)
)
