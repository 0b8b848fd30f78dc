-- How many items finished: by queue, hour (since 1970), tag and ending, the sum over all shards; see `counters`. Without a
-- name: all items. A value has a byte in front of it; the empty one stands for all that are not told apart.
CREATE TABLE tallies (
    queue integer NOT NULL,
    hour bigint NOT NULL,
    name bytea NOT NULL,
    value bytea NOT NULL,
    shard integer NOT NULL,
    completed bigint NOT NULL,
    explicit bigint NOT NULL,
    retries_exhausted bigint NOT NULL,
    expired bigint NOT NULL,
    cancelled bigint NOT NULL,
    poison bigint NOT NULL,
    PRIMARY KEY (queue, hour, name, value, shard)
) WITH (fillfactor = 30);
CREATE INDEX tallies_by_shard ON tallies (shard, hour);
CREATE INDEX tallies_by_hour ON tallies (hour);
