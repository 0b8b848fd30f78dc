-- `begins`: fairness was just turned on, so the ready pages have no fairness key yet.
INSERT INTO round_robins (queue, fairness_key, deliveries, keyed_rank, keyed_time, keyed_seq)
SELECT queue, fairness_key, deliveries,
       CASE WHEN begins THEN -9223372036854775808 END, CASE WHEN begins THEN 0 END, CASE WHEN begins THEN 0 END
FROM unnest($1::integer[], $2::bigint[], $3::integer[], $4::boolean[]) AS turn (queue, fairness_key, deliveries, begins)
ORDER BY queue
ON CONFLICT (queue) DO UPDATE SET
    fairness_key = excluded.fairness_key,
    deliveries = excluded.deliveries,
    keyed_rank = coalesce(excluded.keyed_rank, round_robins.keyed_rank),
    keyed_time = coalesce(excluded.keyed_time, round_robins.keyed_time),
    keyed_seq = coalesce(excluded.keyed_seq, round_robins.keyed_seq)
