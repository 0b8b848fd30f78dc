-- How many bytes `read_outcomes.sql`, `read_errors.sql` and the bodies of `read_edits.sql` are. PostgreSQL does not read the values.
SELECT seq, sum(bytes)::bigint
FROM (
    SELECT seq, octet_length(outcome) AS bytes FROM outcomes WHERE seq = ANY ($1::bigint[])
    UNION ALL
    SELECT seq, octet_length(error) FROM errors WHERE seq = ANY ($1::bigint[])
    UNION ALL
    SELECT seq, octet_length(body) FROM edits WHERE seq = ANY ($1::bigint[])
) AS sides
GROUP BY seq
