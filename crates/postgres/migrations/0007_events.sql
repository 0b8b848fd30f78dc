-- What happened, for whoever asks afterwards: a row a transaction or a few, packed by `told.rs`. Partitions are written one after the
-- other, in a ring: the oldest is truncated, and the disk has its room back.
CREATE SEQUENCE event_sequence AS bigint MINVALUE 1;
CREATE TABLE events (
    slot smallint NOT NULL,
    -- Drawn while the transaction holds all its locks: those that tell of one item are in order. They become visible out of
    -- order; `events.rs` says how nothing is missed.
    number bigint NOT NULL,
    at bigint NOT NULL,
    told bytea NOT NULL,
    PRIMARY KEY (number, slot)
) PARTITION BY LIST (slot);
ALTER TABLE events ALTER told SET STORAGE EXTERNAL;

DO $$
BEGIN
    FOR slot IN 0..7 LOOP
        EXECUTE format('CREATE TABLE events_%s PARTITION OF events FOR VALUES IN (%s) WITH (toast_tuple_target = 8160)', slot, slot);
    END LOOP;
END $$;

-- The partition that is written to and since when (NULL: nobody has written to it), and the last number that is not kept.
ALTER TABLE catalog
    ADD COLUMN event_slot smallint NOT NULL DEFAULT 0,
    ADD COLUMN event_slot_since bigint,
    ADD COLUMN events_gone bigint NOT NULL DEFAULT 0;

-- Goes on in the next partition when the present one holds this many bytes or is this old, by one server at a time. `$1` is
-- the class of the store's locks, `$4` the time.
CREATE FUNCTION rotate_events(integer, bigint, bigint, bigint) RETURNS void
LANGUAGE plpgsql SET lock_timeout = '50ms' AS $$
DECLARE
    present smallint;
    since bigint;
    next smallint;
    last bigint;
BEGIN
    SELECT event_slot, event_slot_since INTO present, since FROM catalog;
    IF pg_relation_size(format('events_%s', present)::regclass) = 0 THEN
        RETURN;
    END IF;
    IF since IS NOT NULL AND $4 - since < $3 AND pg_table_size(format('events_%s', present)::regclass) < $2 THEN
        RETURN;
    END IF;
    IF NOT pg_try_advisory_xact_lock($1, -3) THEN
        RETURN;
    END IF;
    IF since IS NULL THEN
        UPDATE catalog SET event_slot_since = $4;
        RETURN;
    END IF;
    next := (present + 1) % 8;
    BEGIN
        EXECUTE format('LOCK TABLE events_%s IN ACCESS EXCLUSIVE MODE', next);
        EXECUTE format('SELECT max(number) FROM events_%s', next) INTO last;
        IF last IS NOT NULL THEN
            EXECUTE format('TRUNCATE events_%s', next);
        END IF;
        UPDATE catalog
        SET event_slot = next, event_slot_since = $4, events_gone = greatest(events_gone, coalesce(last, 0));
    EXCEPTION WHEN lock_not_available THEN
    END;
END $$;
