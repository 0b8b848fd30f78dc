-- Items in a range of numbers that have all of these tags.
SELECT tags.seq
FROM tags
JOIN unnest($3::bytea[], $4::bytea[]) AS asked (name, value)
    ON tags.name = asked.name AND tags.value = asked.value
WHERE tags.seq BETWEEN $1 AND $2
GROUP BY tags.seq
HAVING count(*) = cardinality($3::bytea[])
