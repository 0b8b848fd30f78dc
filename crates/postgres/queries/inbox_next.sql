-- The first entries, but at least one, whose payload fits.
SELECT position
FROM (
    SELECT position, sum(bytes) OVER (ORDER BY position) - bytes AS before
    FROM (
        SELECT position, coalesce(octet_length(payload), 0) + octet_length(params::text) AS bytes
        FROM inbox
        WHERE queue <> ALL ($1::text[])
        ORDER BY position
        LIMIT $2
    ) AS sized
) AS summed
WHERE before < $3::bigint
ORDER BY position
