-- `$2` is NULL where the database's clock counts.
SELECT first_seq, last_seq, queue, heads
FROM due($1, coalesce($2, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint), $3)
