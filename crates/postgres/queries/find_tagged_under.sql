-- Items in a range of numbers that have, for each of these tags, the value itself or a value below it: a/b is below a.
SELECT tags.seq
FROM tags
JOIN unnest($3::bytea[], $4::bytea[]) AS asked (name, value)
    ON tags.name = asked.name
    AND (tags.value = asked.value
         OR substring(tags.value FROM 1 FOR octet_length(asked.value) + 1) = asked.value || '\x2f'::bytea)
WHERE tags.seq BETWEEN $1 AND $2
GROUP BY tags.seq
HAVING count(*) = cardinality($3::bytea[])
