INSERT INTO terminal_pages (
    partition, first_seq, last_seq, queue, completed_count, failed_count, remove_at, has_side_rows, items
)
SELECT * FROM unnest(
    $1::smallint[], $2::bigint[], $3::bigint[], $4::integer[], $5::integer[], $6::integer[], $7::bigint[],
    $8::boolean[], $9::bytea[]
)
