INSERT INTO pages (first_seq, last_seq, queue, ready, rank, place, foremost, scheduled, due, wake, heads, key, leased)
SELECT * FROM unnest(
    $1::bigint[], $2::bigint[], $3::integer[], $4::integer[], $5::bigint[], $6::bigint[], $7::bigint[],
    $8::integer[], $9::bigint[], $10::bigint[], $11::bytea[], $12::bigint[], $13::integer[]
)
