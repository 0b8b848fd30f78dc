-- The first schema: queues, items, what belongs to items, counters, key-value records.
-- Times are milliseconds since 1970. Text that clients choose is bytea: PostgreSQL's text holds no zero byte.

-- One row. `version` moves with every change of a queue, so that a server knows when what it remembers is old.
CREATE TABLE catalog (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    salt bigint NOT NULL,
    version bigint NOT NULL DEFAULT 0,
    body_slot smallint NOT NULL DEFAULT 0
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

-- Items, many to a row: numbers from `first_seq` to `last_seq`, all of one queue, heads packed by `heads.rs`. Rows never
-- overlap. All of a page that wait to be given out stand together in the queue's order. Whoever changes anything of an
-- item holds the lock of its page.
CREATE TABLE pages (
    first_seq bigint PRIMARY KEY,
    last_seq bigint NOT NULL,
    queue integer NOT NULL,
    -- Items that are counted as ready, and their place in the queue's order, up to the number of the foremost.
    ready integer NOT NULL,
    rank bigint,
    place bigint,
    foremost bigint,
    -- Items that are counted as scheduled, and when they become ready.
    scheduled integer NOT NULL,
    due bigint,
    -- When time next changes one of them or makes it ready.
    wake bigint,
    heads bytea NOT NULL
) WITH (toast_tuple_target = 8160);
ALTER TABLE pages ALTER heads SET STORAGE EXTERNAL;
CREATE INDEX pages_ready ON pages (queue, rank, place, foremost) WHERE rank IS NOT NULL;
CREATE INDEX pages_wake ON pages (wake, first_seq) WHERE wake IS NOT NULL;

-- Pages of which every item is finished, and goes at the same time. They lie by that time: a partition that holds none
-- any more is truncated, and the disk has its room back. `side`: one of them has rows in other tables.
CREATE TABLE finished (
    slot smallint NOT NULL,
    first_seq bigint NOT NULL,
    last_seq bigint NOT NULL,
    queue integer NOT NULL,
    completed integer NOT NULL,
    failed integer NOT NULL,
    remove_at bigint,
    side boolean NOT NULL,
    heads bytea NOT NULL,
    PRIMARY KEY (first_seq, slot)
) PARTITION BY LIST (slot);
ALTER TABLE finished ALTER heads SET STORAGE EXTERNAL;
CREATE INDEX finished_remove_at ON finished (remove_at) WHERE remove_at IS NOT NULL;

-- What was submitted, many items to a row; heads say where in `blob` theirs is. Never changed. `catalog.body_slot` is
-- the partition that is written to; one that no item needs any more is truncated. The last
-- one holds what had to be kept of others.
CREATE TABLE bodies (
    slot smallint NOT NULL,
    first_seq bigint NOT NULL,
    last_seq bigint NOT NULL,
    blob bytea NOT NULL,
    PRIMARY KEY (first_seq, slot)
) PARTITION BY LIST (slot);
ALTER TABLE bodies ALTER blob SET STORAGE EXTERNAL;

DO $$
BEGIN
    FOR slot IN 0..24 LOOP
        EXECUTE format(
            'CREATE TABLE finished_%s PARTITION OF finished FOR VALUES IN (%s) WITH (toast_tuple_target = 8160)',
            slot, slot
        );
    END LOOP;
    FOR slot IN 0..15 LOOP
        EXECUTE format(
            'CREATE TABLE bodies_%s PARTITION OF bodies FOR VALUES IN (%s) WITH (toast_tuple_target = 8160)',
            slot, slot
        );
    END LOOP;
END $$;

-- The next ready pages of a queue after a place (rank, place, number), locked without waiting, until they hold as many
-- items as are wanted.
CREATE FUNCTION receivable(integer, bigint, bigint, bigint, bigint) RETURNS SETOF pages LANGUAGE plpgsql AS $$
DECLARE
    here refcursor;
    page pages;
    wanted bigint := $5;
BEGIN
    OPEN here FOR
        SELECT * FROM pages
        WHERE queue = $1 AND rank IS NOT NULL AND (rank, place, foremost) > ($2, $3, $4)
        ORDER BY rank, place, foremost
        FOR UPDATE SKIP LOCKED;
    WHILE wanted > 0 LOOP
        FETCH here INTO page;
        EXIT WHEN NOT FOUND;
        RETURN NEXT page;
        wanted := wanted - page.ready;
    END LOOP;
    CLOSE here;
END $$;

-- Pages that time changes, between two times, earliest first, locked without waiting, until they hold this many items.
CREATE FUNCTION due(bigint, bigint, bigint) RETURNS SETOF pages LANGUAGE plpgsql AS $$
DECLARE
    here refcursor;
    page pages;
    wanted bigint := $3;
BEGIN
    OPEN here FOR
        SELECT * FROM pages
        WHERE wake > $1 AND wake <= $2
        ORDER BY wake, first_seq
        FOR UPDATE SKIP LOCKED;
    WHILE wanted > 0 LOOP
        FETCH here INTO page;
        EXIT WHEN NOT FOUND;
        RETURN NEXT page;
        wanted := wanted - (page.last_seq - page.first_seq + 1);
    END LOOP;
    CLOSE here;
END $$;

-- As many numbers in a row as are wanted; the first of them. `$1` is the class of the store's locks.
CREATE FUNCTION new_sequences(integer, integer) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    first bigint;
BEGIN
    PERFORM pg_advisory_lock($1, -1);
    first := nextval('item_sequence');
    IF $2 > 1 THEN
        PERFORM setval('item_sequence', first + $2 - 1);
    END IF;
    PERFORM pg_advisory_unlock($1, -1);
    RETURN first;
END $$;

-- Goes on in an empty partition of `bodies` when the present one holds this many bytes.
CREATE FUNCTION rotate_bodies(bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    present smallint := (SELECT body_slot FROM catalog);
BEGIN
    IF pg_table_size(format('bodies_%s', present)::regclass) < $1 THEN
        RETURN;
    END IF;
    FOR part IN 0..14 LOOP
        IF pg_relation_size(format('bodies_%s', part)::regclass) = 0 THEN
            UPDATE catalog SET body_slot = part;
            RETURN;
        END IF;
    END LOOP;
END $$;

-- Up to so many pages that hold items between these numbers.
CREATE FUNCTION pages_between(bigint, bigint, bigint)
RETURNS TABLE (first_seq bigint, last_seq bigint) LANGUAGE sql AS $$
    SELECT * FROM (
        SELECT * FROM (SELECT first_seq, last_seq FROM pages WHERE first_seq <= $1 ORDER BY first_seq DESC LIMIT 1) AS p
        UNION ALL
        SELECT * FROM (SELECT first_seq, last_seq FROM finished WHERE first_seq <= $1 ORDER BY first_seq DESC LIMIT 1) AS f
        UNION ALL
        SELECT first_seq, last_seq FROM pages WHERE first_seq > $1 AND first_seq <= $2
        UNION ALL
        SELECT first_seq, last_seq FROM finished WHERE first_seq > $1 AND first_seq <= $2
    ) AS page
    WHERE page.last_seq >= $1
    LIMIT $3
$$;

-- Empties a partition of `bodies`, if none of it is needed, or so little that it is put with what is kept. Tells whether.
CREATE FUNCTION reclaim_bodies(smallint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    many CONSTANT bigint := 1000;
    kept CONSTANT smallint := 15;
    low bigint;
    high bigint;
    needed bigint;
    staying bigint[];
    bytes bigint;
BEGIN
    SELECT min(first_seq), max(last_seq) INTO low, high FROM bodies WHERE slot = $1;
    IF low IS NOT NULL THEN
        SELECT count(*) INTO needed FROM pages_between(low, high, many);
        IF needed = many THEN
            RETURN false;
        END IF;
        staying := ARRAY(
            SELECT DISTINCT bodies.first_seq FROM pages_between(low, high, many) AS page
            JOIN bodies ON bodies.slot = $1 AND bodies.first_seq <= page.last_seq AND bodies.last_seq >= page.first_seq
        );
        SELECT coalesce(sum(octet_length(blob)), 0) INTO bytes
        FROM bodies WHERE slot = $1 AND first_seq = ANY (staying);
        IF bytes > pg_table_size(format('bodies_%s', $1)::regclass) / 8 THEN
            RETURN false;
        END IF;
        INSERT INTO bodies (slot, first_seq, last_seq, blob)
        SELECT kept, first_seq, last_seq, blob FROM bodies WHERE slot = $1 AND first_seq = ANY (staying);
    END IF;
    EXECUTE format('TRUNCATE bodies_%s', $1);
    RETURN true;
END $$;

-- Gives the disk back what nobody needs: partitions that hold nothing any more are truncated, by one server at a time.
-- Who cannot have a lock at once tries the next time. `$1` is the class of the store's locks.
CREATE FUNCTION reclaim(integer) RETURNS integer LANGUAGE plpgsql SET lock_timeout = '50ms' AS $$
DECLARE
    name text;
    low bigint;
    high bigint;
    is_empty boolean;
    reclaimed integer := 0;
BEGIN
    IF NOT pg_try_advisory_xact_lock($1, -2) THEN
        RETURN 0;
    END IF;
    -- What was kept of partitions that are gone, and is not needed any more.
    DELETE FROM bodies
    WHERE slot = 15 AND NOT EXISTS (SELECT 1 FROM pages_between(bodies.first_seq, bodies.last_seq, 1));
    FOR part IN 0..24 LOOP
        name := format('finished_%s', part);
        CONTINUE WHEN pg_relation_size(name::regclass) = 0;
        EXECUTE format('SELECT NOT EXISTS (SELECT 1 FROM %I)', name) INTO is_empty;
        CONTINUE WHEN NOT is_empty;
        BEGIN
            EXECUTE format('LOCK TABLE %I IN ACCESS EXCLUSIVE MODE', name);
            EXECUTE format('SELECT NOT EXISTS (SELECT 1 FROM %I)', name) INTO is_empty;
            IF is_empty THEN
                EXECUTE format('TRUNCATE %I', name);
                reclaimed := reclaimed + 1;
            END IF;
        EXCEPTION WHEN lock_not_available THEN
        END;
    END LOOP;
    FOR part IN 0..14 LOOP
        name := format('bodies_%s', part);
        CONTINUE WHEN part = (SELECT body_slot FROM catalog) OR pg_relation_size(name::regclass) = 0;
        -- Not worth a lock while it is full of what is needed.
        SELECT min(first_seq), max(last_seq) INTO low, high FROM bodies WHERE bodies.slot = part;
        CONTINUE WHEN (SELECT count(*) FROM pages_between(low, high, 1000)) = 1000;
        BEGIN
            EXECUTE format('LOCK TABLE %I IN ACCESS EXCLUSIVE MODE', name);
            reclaimed := reclaimed + reclaim_bodies(part::smallint)::integer;
        EXCEPTION WHEN lock_not_available THEN
        END;
    END LOOP;
    RETURN reclaimed;
END $$;

-- Fields that were edited, in place of what was submitted.
CREATE TABLE edits (
    seq bigint PRIMARY KEY,
    sets_state_blob boolean NOT NULL,
    state_blob bytea,
    sets_blob boolean NOT NULL,
    blob bytea,
    sets_metadata boolean NOT NULL,
    metadata bytea,
    sets_parameters boolean NOT NULL,
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
CREATE INDEX chosen_ids_by_item ON chosen_ids (seq);

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

-- For lists. The group of an item is a tag without a name.
CREATE TABLE tags (
    seq bigint NOT NULL,
    name bytea NOT NULL,
    value bytea NOT NULL,
    PRIMARY KEY (seq, name)
);

-- How many items of a queue stand where: the sum over all shards. Each worker adds to a shard of its own, and goes on in
-- another now and then: a row that was changed often is slow to find, for as long as a snapshot may see what it was.
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

-- The last batch of each session that writes, and the time it was decided by: tells after a lost connection whether a
-- commit took place, and keeps time from going back. A number is never used twice. Each batch has a row of its own in place
-- of the one before: see `counters`.
CREATE SEQUENCE session_sequence AS integer MINVALUE 1;
CREATE TABLE sessions (
    session integer NOT NULL,
    batch bigint NOT NULL,
    decided_at bigint NOT NULL,
    opened_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (session, batch)
);

CREATE TABLE kv (
    key bytea PRIMARY KEY,
    value bytea NOT NULL,
    expires_at bigint
);
