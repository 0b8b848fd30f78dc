INSERT INTO rates (queue, spent)
SELECT * FROM unnest($1::integer[], $2::bigint[]) AS rate (queue, spent)
ORDER BY queue
ON CONFLICT (queue) DO UPDATE SET spent = excluded.spent
