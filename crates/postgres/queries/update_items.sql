UPDATE items SET
    queue = after.queue, state = after.state, priority = after.priority, ready_at = after.ready_at,
    retries = after.retries, deliveries = after.deliveries, revision = after.revision,
    transitions = after.transitions, bytes = after.bytes, expires_at = after.expires_at, rank = after.rank,
    place = after.place, due = after.due, wake = after.wake, lease_token = after.lease_token,
    lease_deadline = after.lease_deadline, lease_visibility = after.lease_visibility,
    lease_renewals = after.lease_renewals, lease_unacknowledged = after.lease_unacknowledged,
    lease_buffers = after.lease_buffers, settle_token = after.settle_token, settle_verb = after.settle_verb,
    settle_left = after.settle_left, settle_digest = after.settle_digest, finished_at = after.finished_at,
    remove_at = after.remove_at, failure = after.failure, extras = after.extras
FROM unnest(
    $1::bigint[], $2::integer[], $3::smallint[], $4::smallint[], $5::bigint[], $6::bigint[], $7::bigint[],
    $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[],
    $15::bigint[], $16::uuid[], $17::bigint[], $18::bigint[], $19::bigint[], $20::boolean[], $21::text[],
    $22::uuid[], $23::smallint[], $24::smallint[], $25::bigint[], $26::bigint[], $27::bigint[],
    $28::smallint[], $29::text[]
) AS after (
    seq, queue, state, priority, ready_at, retries, deliveries, revision, transitions, bytes, expires_at,
    rank, place, due, wake, lease_token, lease_deadline, lease_visibility, lease_renewals,
    lease_unacknowledged, lease_buffers, settle_token, settle_verb, settle_left, settle_digest, finished_at,
    remove_at, failure, extras
)
WHERE items.seq = after.seq
