INSERT INTO finished (slot, first_seq, last_seq, queue, completed, failed, remove_at, side, heads)
SELECT * FROM unnest(
    $1::smallint[], $2::bigint[], $3::bigint[], $4::integer[], $5::integer[], $6::integer[], $7::bigint[],
    $8::boolean[], $9::bytea[]
)
