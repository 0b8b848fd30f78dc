-- What a shard holds of late hours goes to the next: in the order in which they are counted, without tags first.
WITH old AS (
    DELETE FROM tallies WHERE (queue, hour, name, value, shard) IN (
        SELECT queue, hour, name, value, shard FROM tallies WHERE shard = $1 AND hour >= $3
        ORDER BY name <> '', queue, hour, name, value
        FOR UPDATE
    )
    RETURNING *
)
INSERT INTO tallies (shard, queue, hour, name, value, completed, explicit, retries_exhausted, expired, cancelled, poison)
SELECT $2::integer, queue, hour, name, value, completed, explicit, retries_exhausted, expired, cancelled, poison FROM old
ORDER BY name <> '', queue, hour, name, value
ON CONFLICT (queue, hour, name, value, shard) DO UPDATE SET
    completed = tallies.completed + excluded.completed,
    explicit = tallies.explicit + excluded.explicit,
    retries_exhausted = tallies.retries_exhausted + excluded.retries_exhausted,
    expired = tallies.expired + excluded.expired,
    cancelled = tallies.cancelled + excluded.cancelled,
    poison = tallies.poison + excluded.poison
