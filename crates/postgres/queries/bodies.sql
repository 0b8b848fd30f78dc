-- Only the fields asked for: a heavy one that nobody wants is not even read.
SELECT seq, body,
       CASE WHEN $2 THEN state_blob END,
       CASE WHEN $3 THEN blob END,
       CASE WHEN $4 THEN metadata END,
       CASE WHEN $5 THEN parameters END
FROM bodies
WHERE seq = ANY ($1::bigint[])
