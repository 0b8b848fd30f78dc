-- Moves the tallies that one shard has of recent hours to the next shard. Locks rows in the order in which batches add to
-- them: the rows of all items before the rows of tags.
WITH old AS (
    DELETE FROM tallies WHERE (queue, hour, tag_name, tag_value, shard) IN (
        SELECT queue, hour, tag_name, tag_value, shard FROM tallies WHERE shard = $1 AND hour >= $3
        ORDER BY tag_name <> '', queue, hour, tag_name, tag_value
        FOR UPDATE
    )
    RETURNING *
)
INSERT INTO tallies (
    shard, queue, hour, tag_name, tag_value, completed, explicit, retries_exhausted, expired, cancelled, poison
)
SELECT $2::integer, queue, hour, tag_name, tag_value, completed, explicit, retries_exhausted, expired, cancelled, poison
FROM old
ORDER BY tag_name <> '', queue, hour, tag_name, tag_value
