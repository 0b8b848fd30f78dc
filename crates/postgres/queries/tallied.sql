SELECT hour, value, sum(completed)::bigint, sum(explicit)::bigint, sum(retries_exhausted)::bigint, sum(expired)::bigint, sum(cancelled)::bigint, sum(poison)::bigint
FROM tallies
WHERE queue = $1 AND hour >= $2 AND hour < $3 AND name = $4
GROUP BY hour, value
ORDER BY hour, value
