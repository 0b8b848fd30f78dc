ON CONFLICT (queue, hour, tag_name, tag_value, shard) DO UPDATE SET
    completed = tallies.completed + excluded.completed,
    explicit = tallies.explicit + excluded.explicit,
    retries_exhausted = tallies.retries_exhausted + excluded.retries_exhausted,
    expired = tallies.expired + excluded.expired,
    cancelled = tallies.cancelled + excluded.cancelled,
    poison = tallies.poison + excluded.poison
