WITH next AS (UPDATE catalog SET version = version + 1 RETURNING version),
     doomed AS (SELECT seq, id FROM items WHERE queue = $1),
     gone_bodies AS (DELETE FROM bodies USING doomed WHERE bodies.seq = doomed.seq),
     gone_errors AS (DELETE FROM errors USING doomed WHERE errors.seq = doomed.seq),
     gone_outcomes AS (DELETE FROM outcomes USING doomed WHERE outcomes.seq = doomed.seq),
     gone_tags AS (DELETE FROM tags USING doomed WHERE tags.seq = doomed.seq),
     gone_keys AS (DELETE FROM keys USING doomed WHERE keys.seq = doomed.seq),
     gone_ids AS (DELETE FROM chosen_ids USING doomed WHERE chosen_ids.id = doomed.id),
     gone_counters AS (DELETE FROM counters WHERE queue = $1),
     gone_items AS (DELETE FROM items WHERE queue = $1)
UPDATE queues SET name = NULL, definition = NULL, version = next.version FROM next WHERE queues.id = $1
