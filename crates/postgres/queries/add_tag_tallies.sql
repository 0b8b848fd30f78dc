-- A tag may have `values_max` different values in an hour. All further values are counted under the empty value.
WITH new AS (
    SELECT * FROM unnest(
        $2::integer[], $3::bigint[], $4::bytea[], $5::bytea[],
        $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[]
    ) AS new (
        queue, hour, tag_name, tag_value, completed, explicit, retries_exhausted, expired, cancelled, poison, values_max
    )
), tag AS (
    SELECT queue, hour, tag_name, ARRAY(
        SELECT DISTINCT tag_value FROM tallies
        WHERE tallies.queue = named.queue AND tallies.hour = named.hour AND tallies.tag_name = named.tag_name
          AND tag_value <> ''
    ) AS stored_values
    FROM (SELECT DISTINCT queue, hour, tag_name FROM new) AS named
), numbered AS (
    SELECT new.*, tag_value = ANY (stored_values) AS is_stored, cardinality(stored_values) AS stored_count,
           row_number() OVER (
               PARTITION BY queue, hour, tag_name, tag_value = ANY (stored_values) ORDER BY tag_value
           ) AS nth
    FROM new JOIN tag USING (queue, hour, tag_name)
)
INSERT INTO tallies (
    shard, queue, hour, tag_name, tag_value, completed, explicit, retries_exhausted, expired, cancelled, poison
)
SELECT $1::integer, queue, hour, tag_name,
       CASE WHEN is_stored OR stored_count + nth <= values_max THEN tag_value ELSE '' END AS counted_as,
       sum(completed), sum(explicit), sum(retries_exhausted), sum(expired), sum(cancelled), sum(poison)
FROM numbered
GROUP BY queue, hour, tag_name, counted_as
ORDER BY queue, hour, tag_name, counted_as
