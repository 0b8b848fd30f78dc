-- What was told from a number on up to another, in order.
SELECT number, at, told FROM events WHERE number >= $1 AND number <= $2 ORDER BY number LIMIT $3
