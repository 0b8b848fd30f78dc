INSERT INTO tallies (
    shard, queue, hour, tag_name, tag_value, completed, explicit, retries_exhausted, expired, cancelled, poison
)
SELECT $1::integer, queue, hour, ''::bytea, ''::bytea, completed, explicit, retries_exhausted, expired, cancelled, poison
FROM unnest(
    $2::integer[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[]
) AS new (queue, hour, completed, explicit, retries_exhausted, expired, cancelled, poison)
ORDER BY queue, hour
