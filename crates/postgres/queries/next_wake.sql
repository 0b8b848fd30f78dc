SELECT min(wake) FROM items WHERE wake > $1
