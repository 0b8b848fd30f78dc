-- Schema version 1, part 1 of 3: the tables.
--
-- Times are milliseconds since 1970. Text that clients choose is bytea, because PostgreSQL's text cannot hold a zero
-- byte. `seq` is the sequence number of an item, in order of submission.

-- One row for the whole store.
CREATE TABLE catalog (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    -- Part of every item id, and of the name of the notification channel.
    salt bigint NOT NULL,
    -- Where the table is, and which of the copies of the store this is: 0 for the original. A restored dump is somewhere
    -- else, so the first server that opens it gives it another number. NULL: no server has opened the store yet.
    home text,
    history integer NOT NULL DEFAULT 0,
    -- Rises with every change of a queue. A server compares it to find out whether its cached queues are current.
    version bigint NOT NULL DEFAULT 0,
    -- The partition of `payloads` that new rows go to.
    payload_partition smallint NOT NULL DEFAULT 0,
    -- The partition of `events` that new rows go to, and since when. NULL: no rotation has looked at it yet.
    event_partition smallint NOT NULL DEFAULT 0,
    event_partition_since bigint,
    -- The highest number of an event row that was removed.
    events_removed_through bigint NOT NULL DEFAULT 0
);
INSERT INTO catalog (salt) SELECT ('x' || substr(md5(gen_random_uuid()::text), 1, 16))::bit(64)::bigint;

CREATE SEQUENCE item_sequence AS bigint MINVALUE 1 MAXVALUE 1099511627775;
CREATE SEQUENCE queue_sequence AS bigint MINVALUE 1 MAXVALUE 2147483647;

-- `definition` is NULL after the queue was deleted. The row stays, so that servers drop the queue from their cache.
CREATE TABLE queues (
    id integer PRIMARY KEY,
    name text COLLATE "C" UNIQUE,
    definition text,
    version bigint NOT NULL
);
CREATE INDEX queues_by_version ON queues (version);

-- Items, many in a row: all items of one queue with numbers from `first_seq` to `last_seq`. Pages never overlap. The
-- ready items of a page are next to each other in the queue's order. A transaction that changes an item holds the lock
-- of its page.
CREATE TABLE pages (
    first_seq bigint PRIMARY KEY,
    last_seq bigint NOT NULL,
    queue integer NOT NULL,
    -- How many items count as ready, and the position of the first one in the queue's order.
    ready_count integer NOT NULL,
    order_rank bigint,
    order_time bigint,
    order_seq bigint,
    -- How many items count as scheduled, and when they become ready.
    scheduled_count integer NOT NULL,
    ready_at bigint,
    -- When an item of the page next becomes ready, lapses or expires.
    wake_at bigint,
    -- The items, packed by `pages/codec.rs`.
    items bytea NOT NULL,
    -- Set in queues with fairness keys: every item of the page has this key. 0 stands for items without a key.
    fairness_key bigint,
    -- Set in queues with a concurrency limit for each key: how many items are processing.
    leased_count integer
) WITH (toast_tuple_target = 8160);
ALTER TABLE pages ALTER items SET STORAGE EXTERNAL;
CREATE INDEX pages_ready ON pages (queue, order_rank, order_time, order_seq) WHERE order_rank IS NOT NULL;
CREATE INDEX pages_wake ON pages (wake_at, first_seq) WHERE wake_at IS NOT NULL;
CREATE INDEX pages_ready_by_key ON pages (queue, fairness_key, order_rank, order_time, order_seq)
    WHERE fairness_key IS NOT NULL AND order_rank IS NOT NULL;
CREATE INDEX pages_leased ON pages (queue, fairness_key) WHERE leased_count > 0;

-- Pages in which every item is terminal and has the same time of removal. The partition follows from that time: pages
-- that are removed at about the same time share one. An empty partition is truncated, which frees its disk space.
CREATE TABLE terminal_pages (
    partition smallint NOT NULL,
    first_seq bigint NOT NULL,
    last_seq bigint NOT NULL,
    queue integer NOT NULL,
    completed_count integer NOT NULL,
    failed_count integer NOT NULL,
    remove_at bigint,
    -- An item of the page has rows in edits, errors, outcomes, chosen_ids, keys or tags.
    has_side_rows boolean NOT NULL,
    items bytea NOT NULL,
    PRIMARY KEY (first_seq, partition)
) PARTITION BY LIST (partition);
ALTER TABLE terminal_pages ALTER items SET STORAGE EXTERNAL;
CREATE INDEX terminal_pages_remove_at ON terminal_pages (remove_at) WHERE remove_at IS NOT NULL;

-- What clients submitted, many items in a row, never changed. `pages.items` says where in `bytes` the payload of an item
-- is. `catalog.payload_partition` receives new rows; a partition that no item needs is truncated. Partition 15 holds
-- rows that were still needed when their own partition was truncated.
CREATE TABLE payloads (
    partition smallint NOT NULL,
    first_seq bigint NOT NULL,
    last_seq bigint NOT NULL,
    bytes bytea NOT NULL,
    PRIMARY KEY (first_seq, partition)
) PARTITION BY LIST (partition);
ALTER TABLE payloads ALTER bytes SET STORAGE EXTERNAL;

-- Fields that were changed after the submit. They take precedence over `payloads`.
CREATE TABLE edits (
    seq bigint PRIMARY KEY,
    sets_state_blob boolean NOT NULL,
    state_blob bytea,
    sets_blob boolean NOT NULL,
    blob bytea,
    sets_metadata boolean NOT NULL,
    metadata bytea,
    sets_parameters boolean NOT NULL,
    parameters bytea,
    -- Set by a submit that replaced the item: everything but the four fields.
    body text
);

CREATE TABLE errors (
    seq bigint NOT NULL,
    revision bigint NOT NULL,
    error text NOT NULL,
    PRIMARY KEY (seq, revision)
);

CREATE TABLE outcomes (
    seq bigint PRIMARY KEY,
    outcome text NOT NULL
);

-- Item ids that submitters chose. All other ids contain their sequence number.
CREATE TABLE chosen_ids (
    id uuid PRIMARY KEY,
    seq bigint NOT NULL
);
CREATE INDEX chosen_ids_by_item ON chosen_ids (seq);

-- Idempotency keys and replace keys, in the queue that the item was submitted to. A replace key begins with the byte ff,
-- which no text contains.
CREATE TABLE keys (
    queue integer NOT NULL,
    key bytea NOT NULL,
    seq bigint NOT NULL,
    id uuid NOT NULL,
    content_digest bytea NOT NULL,
    -- The item has ended, and another item may have the key.
    freed boolean NOT NULL DEFAULT false
);
CREATE UNIQUE INDEX keys_owner ON keys (queue, key) WHERE NOT freed;
CREATE INDEX keys_by_item ON keys (seq);
CREATE INDEX keys_by_key ON keys (key);

-- Tags of items, for lists. The group of an item is stored as a tag with an empty name.
CREATE TABLE tags (
    seq bigint NOT NULL,
    name bytea NOT NULL,
    value bytea NOT NULL,
    PRIMARY KEY (seq, name)
);
-- Holds `seq` too, so that items with a tag are counted in the index alone.
CREATE INDEX tags_by_value ON tags (name, value, seq);

-- How many items of a queue are in each state: the sum over all shards. Each worker adds to its own shard, and moves to
-- another shard after a number of batches. The reason is that PostgreSQL walks over all dead versions of a row that
-- an open snapshot might still see: a row that changes often becomes slow to read.
CREATE TABLE counters (
    queue integer NOT NULL,
    shard integer NOT NULL,
    pending bigint NOT NULL,
    scheduled bigint NOT NULL,
    processing bigint NOT NULL,
    paused bigint NOT NULL,
    completed bigint NOT NULL,
    failed bigint NOT NULL,
    PRIMARY KEY (queue, shard)
) WITH (fillfactor = 30);
CREATE INDEX counters_by_shard ON counters (shard);

-- How many items ended in an hour (counted since 1970), by queue, tag and kind of end: the sum over all shards, as in
-- `counters`. An empty tag name stands for all items. Each tag value is stored behind one extra byte; the empty value
-- stands for all values beyond the limit of values that are counted separately.
CREATE TABLE tallies (
    queue integer NOT NULL,
    hour bigint NOT NULL,
    tag_name bytea NOT NULL,
    tag_value bytea NOT NULL,
    shard integer NOT NULL,
    completed bigint NOT NULL,
    explicit bigint NOT NULL,
    retries_exhausted bigint NOT NULL,
    expired bigint NOT NULL,
    cancelled bigint NOT NULL,
    poison bigint NOT NULL,
    PRIMARY KEY (queue, hour, tag_name, tag_value, shard)
) WITH (fillfactor = 30);
CREATE INDEX tallies_by_shard ON tallies (shard, hour);
CREATE INDEX tallies_by_hour ON tallies (hour);

-- How much of a queue's rate is used up: all of it until this time, in nanoseconds since 1970. A transaction that reads
-- or changes the row holds the lock of the queue.
CREATE TABLE rate_states (
    queue integer PRIMARY KEY,
    used_until_ns bigint NOT NULL
) WITH (fillfactor = 30);

-- Which fairness key had the last delivery of a queue, and how many in a row. A transaction that reads or changes the row
-- holds the lock of the queue. `keyed_rank`, `keyed_time` and `keyed_seq` are set while items that were ready before
-- fairness was turned on are being moved to pages with a fairness key: the position up to which that is done.
CREATE TABLE round_robins (
    queue integer PRIMARY KEY,
    fairness_key bigint NOT NULL,
    deliveries integer NOT NULL,
    keyed_rank bigint,
    keyed_time bigint,
    keyed_seq bigint
) WITH (fillfactor = 30);

-- The last batch that each session committed, and the time it was decided at. After a lost connection the row says whether
-- the commit took place. The latest time keeps a server's clock from going back. Session numbers are never used
-- twice. Each batch replaces the row of the one before, for the reason given at `counters`.
CREATE SEQUENCE session_sequence AS integer MINVALUE 1;
CREATE TABLE sessions (
    session integer NOT NULL,
    batch bigint NOT NULL,
    decided_at bigint NOT NULL,
    opened_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (session, batch)
);

-- Key-value records.
CREATE TABLE kv (
    key bytea PRIMARY KEY,
    value bytea NOT NULL,
    expires_at bigint
);
CREATE INDEX kv_by_expiry ON kv (expires_at) WHERE expires_at IS NOT NULL;

-- Events: one or a few rows for each batch, packed by `events/codec.rs`. The partitions form a ring: the oldest one is
-- truncated and becomes the next to write to.
CREATE SEQUENCE event_sequence AS bigint MINVALUE 1;
CREATE TABLE events (
    partition smallint NOT NULL,
    -- Drawn while the transaction holds all its locks, so the events of one item are in order. Rows become visible out of
    -- order; `events/watermark.rs` says how a reader misses none.
    number bigint NOT NULL,
    at bigint NOT NULL,
    packed bytea NOT NULL,
    PRIMARY KEY (number, partition)
) PARTITION BY LIST (partition);
ALTER TABLE events ALTER packed SET STORAGE EXTERNAL;

DO $$
DECLARE
    parent text;
    last_partition integer;
BEGIN
    FOR parent, last_partition IN VALUES ('terminal_pages', 24), ('payloads', 15), ('events', 7) LOOP
        FOR number IN 0..last_partition LOOP
            EXECUTE format(
                'CREATE TABLE %1$s_%2$s PARTITION OF %1$s FOR VALUES IN (%2$s) WITH (toast_tuple_target = 8160)',
                parent, number
            );
        END LOOP;
    END LOOP;
END $$;
