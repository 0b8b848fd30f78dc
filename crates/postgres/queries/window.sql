-- Where this many items end: a page looks no further, however rare what it looks for.
SELECT max(seq), count(*) FROM (SELECT seq FROM items WHERE seq > $1 ORDER BY seq LIMIT $2) AS window_of_items
