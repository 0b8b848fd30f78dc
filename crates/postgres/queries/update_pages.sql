UPDATE pages SET
    last_seq = new.last_seq, queue = new.queue, ready_count = new.ready_count, order_rank = new.order_rank,
    order_time = new.order_time, order_seq = new.order_seq, scheduled_count = new.scheduled_count,
    ready_at = new.ready_at, wake_at = new.wake_at, items = new.items, fairness_key = new.fairness_key,
    leased_count = new.leased_count
FROM unnest(
    $1::bigint[], $2::bigint[], $3::integer[], $4::integer[], $5::bigint[], $6::bigint[], $7::bigint[],
    $8::integer[], $9::bigint[], $10::bigint[], $11::bytea[], $12::bigint[], $13::integer[]
) AS new (
    first_seq, last_seq, queue, ready_count, order_rank, order_time, order_seq, scheduled_count, ready_at, wake_at, items,
    fairness_key, leased_count
)
WHERE pages.first_seq = new.first_seq
