-- Keeps the first error of an item and its latest ones.
DELETE FROM errors
USING (
    SELECT seq, revision,
           row_number() OVER (PARTITION BY seq ORDER BY revision) AS from_first,
           row_number() OVER (PARTITION BY seq ORDER BY revision DESC) AS from_last
    FROM errors
    WHERE seq = ANY ($1::bigint[])
) AS ranked
WHERE errors.seq = ranked.seq AND errors.revision = ranked.revision
  AND ranked.from_first > 1 AND ranked.from_last >= $2
