SELECT seq, id, queue, state, priority, created_at, ready_at, retries, deliveries, revision, transitions, bytes,
       expires_at, due, lease_token, lease_deadline, lease_visibility, lease_renewals, lease_unacknowledged,
       lease_buffers, settle_token, settle_verb, settle_left, settle_digest, finished_at, remove_at, failure, extras
FROM items
