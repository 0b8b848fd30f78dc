-- The first schema: queues, items, what belongs to items, counters, key-value records.
-- Times are milliseconds since 1970. Text that clients choose is bytea: PostgreSQL's text holds no zero byte.

-- One row. `version` moves with every change of a queue, so that a server knows when what it remembers is old.
CREATE TABLE catalog (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    salt bigint NOT NULL,
    version bigint NOT NULL DEFAULT 0
);
INSERT INTO catalog (salt) SELECT ('x' || substr(md5(gen_random_uuid()::text), 1, 16))::bit(64)::bigint;

CREATE SEQUENCE item_sequence AS bigint MINVALUE 1 MAXVALUE 1099511627775;
CREATE SEQUENCE queue_sequence AS bigint MINVALUE 1 MAXVALUE 2147483647;

-- `definition` is NULL once the queue is deleted; the row stays to tell servers that remember it.
CREATE TABLE queues (
    id integer PRIMARY KEY,
    name text COLLATE "C" UNIQUE,
    definition text,
    version bigint NOT NULL
);
CREATE INDEX queues_by_version ON queues (version);

-- What decisions need to know of an item, and all that most of them change. Whoever changes anything of an item
-- holds the lock of its row here.
CREATE TABLE items (
    seq bigint PRIMARY KEY,
    id uuid NOT NULL,
    queue integer NOT NULL,
    state smallint NOT NULL,
    priority smallint NOT NULL,
    created_at bigint NOT NULL,
    ready_at bigint NOT NULL,
    retries bigint NOT NULL,
    deliveries bigint NOT NULL,
    revision bigint NOT NULL,
    transitions bigint NOT NULL,
    -- At most this much payload.
    bytes bigint NOT NULL,
    expires_at bigint,
    -- Its place in the queue's order, while it is ready.
    rank bigint,
    place bigint,
    -- When it becomes ready, while it waits for that.
    due bigint,
    -- When time next changes it or makes it ready.
    wake bigint,
    lease_token uuid,
    lease_deadline bigint,
    lease_visibility bigint,
    lease_renewals bigint,
    lease_unacknowledged boolean,
    lease_buffers text,
    settle_token uuid,
    settle_verb smallint,
    settle_left smallint,
    settle_digest bigint,
    finished_at bigint,
    remove_at bigint,
    failure smallint,
    extras text,
    item_group bytea
);
CREATE INDEX items_ready ON items (queue, rank, place, seq) WHERE rank IS NOT NULL;
CREATE INDEX items_wake ON items (wake, seq) WHERE wake IS NOT NULL;

-- What was submitted. Receiving and settling leave it alone unless they edit a field.
CREATE TABLE bodies (
    seq bigint PRIMARY KEY,
    body text,
    state_blob bytea,
    blob bytea,
    metadata bytea,
    parameters bytea
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

-- Ids that their submitters chose; other ids carry their sequence number.
CREATE TABLE chosen_ids (
    id uuid PRIMARY KEY,
    seq bigint NOT NULL
);

-- One idempotency key, one item, in the queue it was submitted to.
CREATE TABLE keys (
    queue integer NOT NULL,
    key bytea NOT NULL,
    seq bigint NOT NULL,
    id uuid NOT NULL,
    content bytea NOT NULL,
    PRIMARY KEY (queue, key)
);
CREATE INDEX keys_by_item ON keys (seq);
CREATE INDEX keys_by_key ON keys (key);

CREATE TABLE tags (
    seq bigint NOT NULL,
    name bytea NOT NULL,
    value bytea NOT NULL,
    PRIMARY KEY (seq, name)
);

-- How many items of a queue stand where: the sum over all shards. Each worker adds to a shard of its own.
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

-- The last batch of each session that writes, and the time it was decided by: tells after a lost connection whether a
-- commit took place, and keeps time from going back. A number is never used twice.
CREATE SEQUENCE session_sequence AS integer MINVALUE 1;
CREATE TABLE sessions (
    session integer PRIMARY KEY,
    batch bigint NOT NULL,
    decided_at bigint NOT NULL,
    opened_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 30);

CREATE TABLE kv (
    key bytea PRIMARY KEY,
    value bytea NOT NULL,
    expires_at bigint
);
