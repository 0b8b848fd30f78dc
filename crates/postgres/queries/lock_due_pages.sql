-- `$2` is NULL if the database's clock decides.
SELECT first_seq, last_seq, queue, items
FROM lock_due_pages($1, coalesce($2, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint), $3)
