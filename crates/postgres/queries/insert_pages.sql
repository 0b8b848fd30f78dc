INSERT INTO pages (
    first_seq, last_seq, queue, ready_count, order_rank, order_time, order_seq, scheduled_count, ready_at, wake_at, items,
    fairness_key, leased_count
)
SELECT * FROM unnest(
    $1::bigint[], $2::bigint[], $3::integer[], $4::integer[], $5::bigint[], $6::bigint[], $7::bigint[],
    $8::integer[], $9::bigint[], $10::bigint[], $11::bytea[], $12::bigint[], $13::integer[]
)
