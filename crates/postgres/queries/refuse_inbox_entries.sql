INSERT INTO inbox_refused
SELECT entry.*, clock_timestamp(), refusal.code, refusal.reason
FROM unnest($1::bigint[], $2::text[], $3::text[]) AS refusal (position, code, reason)
JOIN inbox entry ON entry.position = refusal.position
