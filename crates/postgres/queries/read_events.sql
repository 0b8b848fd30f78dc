SELECT number, at, packed FROM events WHERE number >= $1 AND number <= $2 ORDER BY number LIMIT $3
