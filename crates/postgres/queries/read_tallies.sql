SELECT hour, tag_value, sum(completed)::bigint, sum(explicit)::bigint, sum(retries_exhausted)::bigint,
       sum(expired)::bigint, sum(cancelled)::bigint, sum(poison)::bigint
FROM tallies
WHERE queue = $1 AND hour >= $2 AND hour < $3 AND tag_name = $4
GROUP BY hour, tag_value
ORDER BY hour, tag_value
