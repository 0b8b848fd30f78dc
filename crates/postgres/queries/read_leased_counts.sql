SELECT queue, fairness_key, sum(leased_count)::bigint FROM pages
WHERE queue = ANY ($1::integer[]) AND leased_count > 0
GROUP BY queue, fairness_key
