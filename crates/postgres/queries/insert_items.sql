INSERT INTO items (
    seq, id, queue, state, priority, created_at, ready_at, retries, deliveries, revision, transitions, bytes,
    expires_at, rank, place, due, wake, lease_token, lease_deadline, lease_visibility, lease_renewals,
    lease_unacknowledged, lease_buffers, settle_token, settle_verb, settle_left, settle_digest, finished_at,
    remove_at, failure, extras, item_group
)
SELECT * FROM unnest(
    $1::bigint[], $2::uuid[], $3::integer[], $4::smallint[], $5::smallint[], $6::bigint[], $7::bigint[],
    $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[],
    $15::bigint[], $16::bigint[], $17::bigint[], $18::uuid[], $19::bigint[], $20::bigint[], $21::bigint[],
    $22::boolean[], $23::text[], $24::uuid[], $25::smallint[], $26::smallint[], $27::bigint[], $28::bigint[],
    $29::bigint[], $30::smallint[], $31::text[], $32::bytea[]
)
