-- Reads only the fields asked for.
SELECT seq,
       sets_state_blob AND $2, CASE WHEN $2 THEN state_blob END,
       sets_blob AND $3, CASE WHEN $3 THEN blob END,
       sets_metadata AND $4, CASE WHEN $4 THEN metadata END,
       sets_parameters AND $5, CASE WHEN $5 THEN parameters END,
       body
FROM edits
WHERE seq = ANY ($1::bigint[])
