-- As in 0007, but who rotates looks where it is after it has the lock: what another one had just begun to write was truncated.
CREATE OR REPLACE FUNCTION rotate_events(integer, bigint, bigint, bigint) RETURNS void
LANGUAGE plpgsql SET lock_timeout = '50ms' AS $$
DECLARE
    present smallint;
    since bigint;
    next smallint;
    last bigint;
BEGIN
    FOR locked IN 0..1 LOOP
        SELECT event_slot, event_slot_since INTO present, since FROM catalog;
        IF pg_relation_size(format('events_%s', present)::regclass) = 0 THEN
            RETURN;
        END IF;
        IF since IS NOT NULL AND $4 - since < $3 AND pg_table_size(format('events_%s', present)::regclass) < $2 THEN
            RETURN;
        END IF;
        -- What was true without the lock may not be any more.
        IF locked = 0 AND NOT pg_try_advisory_xact_lock($1, -3) THEN
            RETURN;
        END IF;
    END LOOP;
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
