INSERT INTO rate_states (queue, used_until_ns)
SELECT * FROM unnest($1::integer[], $2::bigint[]) AS state (queue, used_until_ns)
ORDER BY queue
ON CONFLICT (queue) DO UPDATE SET used_until_ns = excluded.used_until_ns
