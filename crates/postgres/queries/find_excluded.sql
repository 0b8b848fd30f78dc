-- Items in a range of numbers that have one of these names as a tag, one of these tags, or one of these tags with the value
-- itself or a value below it: a/b is below a.
SELECT DISTINCT tags.seq
FROM tags
WHERE tags.seq BETWEEN $1 AND $2
    AND (tags.name = ANY ($3::bytea[])
         OR EXISTS (
             SELECT FROM unnest($4::bytea[], $5::bytea[]) AS excluded (name, value)
             WHERE tags.name = excluded.name AND tags.value = excluded.value
         )
         OR EXISTS (
             SELECT FROM unnest($6::bytea[], $7::bytea[]) AS excluded (name, value)
             WHERE tags.name = excluded.name
                 AND (tags.value = excluded.value
                      OR substring(tags.value FROM 1 FOR octet_length(excluded.value) + 1)
                          = excluded.value || '\x2f'::bytea)
         ))
