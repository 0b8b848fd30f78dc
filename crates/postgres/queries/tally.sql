INSERT INTO tallies (shard, queue, hour, name, value, completed, explicit, retries_exhausted, expired, cancelled, poison)
SELECT $1::integer, queue, hour, ''::bytea, ''::bytea, completed, explicit, retries_exhausted, expired, cancelled, poison
FROM unnest($2::integer[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[])
    AS finished (queue, hour, completed, explicit, retries_exhausted, expired, cancelled, poison)
ORDER BY queue, hour
ON CONFLICT (queue, hour, name, value, shard) DO UPDATE SET
    completed = tallies.completed + excluded.completed,
    explicit = tallies.explicit + excluded.explicit,
    retries_exhausted = tallies.retries_exhausted + excluded.retries_exhausted,
    expired = tallies.expired + excluded.expired,
    cancelled = tallies.cancelled + excluded.cancelled,
    poison = tallies.poison + excluded.poison
