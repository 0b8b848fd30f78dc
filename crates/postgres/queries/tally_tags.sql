-- A tag that has as many values in its hour as are told apart has the others under the empty one.
WITH finished AS (
    SELECT * FROM unnest(
        $2::integer[], $3::bigint[], $4::bytea[], $5::bytea[],
        $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[]
    ) AS finished (queue, hour, name, value, completed, explicit, retries_exhausted, expired, cancelled, poison)
), tag AS (
    SELECT queue, hour, name, ARRAY(
        SELECT DISTINCT value FROM tallies
        WHERE tallies.queue = named.queue AND tallies.hour = named.hour AND tallies.name = named.name AND value <> ''
    ) AS held
    FROM (SELECT DISTINCT queue, hour, name FROM finished) AS named
), numbered AS (
    SELECT finished.*, value = ANY (held) AS known, cardinality(held) AS count,
           row_number() OVER (PARTITION BY queue, hour, name, value = ANY (held) ORDER BY value) AS nth
    FROM finished JOIN tag USING (queue, hour, name)
)
INSERT INTO tallies (shard, queue, hour, name, value, completed, explicit, retries_exhausted, expired, cancelled, poison)
SELECT $1::integer, queue, hour, name,
       CASE WHEN known OR count + nth <= $12 THEN value ELSE '' END AS counted_as,
       sum(completed), sum(explicit), sum(retries_exhausted), sum(expired), sum(cancelled), sum(poison)
FROM numbered
GROUP BY queue, hour, name, counted_as
ORDER BY queue, hour, name, counted_as
ON CONFLICT (queue, hour, name, value, shard) DO UPDATE SET
    completed = tallies.completed + excluded.completed,
    explicit = tallies.explicit + excluded.explicit,
    retries_exhausted = tallies.retries_exhausted + excluded.retries_exhausted,
    expired = tallies.expired + excluded.expired,
    cancelled = tallies.cancelled + excluded.cancelled,
    poison = tallies.poison + excluded.poison
