-- The first entries whose payloads together fit into `$3` bytes, at least one.
SELECT position
FROM (
    SELECT position, sum(bytes) OVER (ORDER BY position) - bytes AS bytes_before
    FROM (
        SELECT position, coalesce(octet_length(payload), 0) + octet_length(params::text) AS bytes
        FROM inbox
        WHERE queue <> ALL ($1::text[])
        ORDER BY position
        LIMIT $2
    ) AS entry
) AS with_sum
WHERE bytes_before < $3::bigint
ORDER BY position
