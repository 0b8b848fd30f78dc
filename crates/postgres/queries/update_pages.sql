UPDATE pages SET
    last_seq = after.last_seq, queue = after.queue, ready = after.ready, rank = after.rank, place = after.place,
    foremost = after.foremost, scheduled = after.scheduled, due = after.due, wake = after.wake, heads = after.heads,
    key = after.key, leased = after.leased
FROM unnest(
    $1::bigint[], $2::bigint[], $3::integer[], $4::integer[], $5::bigint[], $6::bigint[], $7::bigint[],
    $8::integer[], $9::bigint[], $10::bigint[], $11::bytea[], $12::bigint[], $13::integer[]
) AS after (first_seq, last_seq, queue, ready, rank, place, foremost, scheduled, due, wake, heads, key, leased)
WHERE pages.first_seq = after.first_seq
