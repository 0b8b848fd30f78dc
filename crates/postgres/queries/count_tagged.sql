SELECT count(*) FROM tags WHERE name = $3 AND value = $4 AND seq BETWEEN $1 AND $2
