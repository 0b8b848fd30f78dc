-- Items in a range of numbers that have tags with all of these values, or with values under them by whole segments.
SELECT tags.seq
FROM tags
JOIN unnest($3::bytea[], $4::bytea[]) AS wanted (name, top)
    ON tags.name = wanted.name
    AND (tags.value = wanted.top
         OR substring(tags.value FROM 1 FOR octet_length(wanted.top) + 1) = wanted.top || '\x2f'::bytea)
WHERE tags.seq BETWEEN $1 AND $2
GROUP BY tags.seq
HAVING count(*) = cardinality($3::bytea[])
