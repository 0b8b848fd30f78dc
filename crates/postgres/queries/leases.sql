SELECT queue, key, sum(leased)::bigint FROM pages WHERE queue = ANY ($1::integer[]) AND leased > 0 GROUP BY queue, key
