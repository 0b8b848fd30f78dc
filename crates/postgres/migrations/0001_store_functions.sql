-- Schema version 1, part 2 of 3: functions that the store's statements call.

-- Draws `wanted` consecutive sequence numbers and returns the first. `lock_class` is the class of the store's advisory
-- locks.
CREATE FUNCTION draw_item_seqs(lock_class integer, wanted integer) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    first bigint;
BEGIN
    PERFORM pg_advisory_lock(lock_class, -1);
    first := nextval('item_sequence');
    IF wanted > 1 THEN
        PERFORM setval('item_sequence', first + wanted - 1);
    END IF;
    PERFORM pg_advisory_unlock(lock_class, -1);
    RETURN first;
END $$;

-- The next pages with ready items of a queue, behind a position in its order, until they hold `wanted` ready items.
-- Locks them. Skips pages that another transaction has locked.
CREATE FUNCTION lock_ready_pages(queue_id integer, after_rank bigint, after_time bigint, after_seq bigint, wanted bigint)
RETURNS SETOF pages LANGUAGE plpgsql AS $$
DECLARE
    next_pages refcursor;
    page pages;
BEGIN
    OPEN next_pages FOR
        SELECT * FROM pages
        WHERE queue = queue_id AND order_rank IS NOT NULL
            AND (order_rank, order_time, order_seq) > (after_rank, after_time, after_seq)
        ORDER BY order_rank, order_time, order_seq
        FOR UPDATE SKIP LOCKED;
    WHILE wanted > 0 LOOP
        FETCH next_pages INTO page;
        EXIT WHEN NOT FOUND;
        RETURN NEXT page;
        wanted := wanted - page.ready_count;
    END LOOP;
    CLOSE next_pages;
END $$;

-- For each fairness key of a queue with processing items: how many more items may be leased if `leased_max` may be at once.
-- `free_at_most` counts leases in pages that the calling transaction has locked as free, because the transaction may
-- end them. A row that a transaction has locked carries its number in `xmax`.
CREATE FUNCTION free_leases_by_key(queue_id integer, leased_max bigint)
RETURNS TABLE (fairness_key bigint, free bigint, free_at_most bigint) LANGUAGE sql AS $$
    SELECT pages.fairness_key, leased_max - sum(leased_count),
        leased_max - coalesce(
            sum(leased_count) FILTER (WHERE pages.xmax IS DISTINCT FROM pg_current_xact_id_if_assigned()::xid), 0
        )
    FROM pages WHERE queue = queue_id AND leased_count > 0
    GROUP BY pages.fairness_key
$$;

-- Fairness keys of a queue with ready items, in round-robin order: behind `last_key`, or beginning with it if its turn is
-- not over. Leaves out `full_keys`. Returns as many keys as are wanted; `uncertain_keys` do not count as one.
CREATE FUNCTION next_fairness_keys(
    queue_id integer, last_key bigint, turn_continues boolean, wanted bigint, full_keys bigint[], uncertain_keys bigint[]
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    keys bigint[] := '{}';
    -- The circle of keys in two parts: each begins behind a key and goes up to a key.
    part_after bigint[] := ARRAY[last_key - turn_continues::integer, -1];
    part_through bigint[] := ARRAY[9223372036854775807, last_key - turn_continues::integer];
    found_keys bigint[];
    next_key bigint;
BEGIN
    FOR part IN 1..2 LOOP
        WITH RECURSIVE walk (key) AS (
            (
                SELECT fairness_key FROM pages
                WHERE queue = queue_id AND fairness_key > part_after[part] AND order_rank IS NOT NULL
                ORDER BY fairness_key LIMIT 1
            )
            UNION ALL
            SELECT (
                SELECT fairness_key FROM pages
                WHERE queue = queue_id AND fairness_key > walk.key AND order_rank IS NOT NULL
                ORDER BY fairness_key LIMIT 1
            ) FROM walk WHERE walk.key < part_through[part]
        ), not_full AS (
            SELECT key FROM walk
            WHERE key <= part_through[part] AND key NOT IN (SELECT unnest(full_keys))
            LIMIT wanted + cardinality(uncertain_keys)
        )
        SELECT coalesce(array_agg(key ORDER BY key), '{}') INTO found_keys FROM not_full;
        FOREACH next_key IN ARRAY found_keys LOOP
            EXIT WHEN wanted <= 0;
            keys := keys || next_key;
            wanted := wanted - (next_key <> ALL (uncertain_keys))::integer;
        END LOOP;
        EXIT WHEN wanted <= 0;
    END LOOP;
    RETURN keys;
END $$;

-- The next pages with ready items of a queue whose fairness keys take turns, until they hold `wanted` items that a receive
-- can deliver. Locks them. Skips pages that another transaction has locked.
--
-- Each key gets as many items as it has turns, by its weight: `weighted_keys` and `weights` list the keys whose weight is
-- not 1. With `leased_max`, a key gets no more than it may have leased at once; leases that the calling transaction
-- may still end are not counted on. Of each key in `unusable_keys`, `unusable_counts` ready items cannot be delivered:
-- the function reads that many more items of the key, and that many more keys.
CREATE FUNCTION lock_ready_pages_by_key(
    queue_id integer, wanted bigint, weighted_keys bigint[], key_weights integer[], leased_max bigint,
    unusable_keys bigint[], unusable_counts bigint[]
) RETURNS SETOF pages LANGUAGE plpgsql AS $$
DECLARE
    turn round_robins;
    keys bigint[];
    -- For keys with processing items: how many more may be leased, certainly and at most.
    leased_keys bigint[] := '{}';
    certainly_free bigint[] := '{}';
    at_most_free bigint[] := '{}';
    full_keys bigint[] := '{}';
    uncertain_keys bigint[] := '{}';
    -- For each of `keys`, at the same index: its weight, its unusable items, how many items it may get at most and how many
    -- of these are certain (NULL: no limit), how many are needed, how many were read, the position of the last page
    -- read, and whether there may be more pages.
    weights bigint[];
    unusable bigint[];
    limits bigint[];
    certain bigint[];
    needed bigint[];
    read_counts bigint[];
    ranks bigint[];
    times bigint[];
    seqs bigint[];
    has_more boolean[];
    next_pages refcursor;
    page pages;
    missing bigint := wanted;
    rounds bigint;
BEGIN
    SELECT * INTO turn FROM round_robins WHERE queue = queue_id;
    IF NOT FOUND THEN
        turn.fairness_key := 0;
        turn.deliveries := 0;
    END IF;
    IF leased_max IS NOT NULL THEN
        SELECT coalesce(array_agg(leased.fairness_key), '{}'), array_agg(leased.free), array_agg(leased.free_at_most),
            coalesce(array_agg(leased.fairness_key) FILTER (WHERE leased.free_at_most <= 0), '{}'),
            coalesce(array_agg(leased.fairness_key) FILTER (WHERE leased.free <= 0 AND leased.free_at_most > 0), '{}')
        INTO leased_keys, certainly_free, at_most_free, full_keys, uncertain_keys
        FROM free_leases_by_key(queue_id, leased_max) AS leased;
    END IF;
    keys := next_fairness_keys(
        queue_id, turn.fairness_key,
        turn.deliveries < coalesce(key_weights[array_position(weighted_keys, turn.fairness_key)], 1),
        wanted + cardinality(unusable_keys), full_keys, uncertain_keys
    );
    IF leased_max IS NOT NULL THEN
        SELECT array_agg(coalesce(leased.free_at_most, leased_max) ORDER BY n),
            array_agg(greatest(coalesce(leased.free, leased_max), 0) ORDER BY n)
        INTO limits, certain
        FROM unnest(keys) WITH ORDINALITY AS asked (key, n)
        LEFT JOIN unnest(leased_keys, certainly_free, at_most_free) AS leased (key, free, free_at_most)
            ON leased.key = asked.key;
    END IF;
    FOR n IN 1..cardinality(keys) LOOP
        weights[n] := coalesce(key_weights[array_position(weighted_keys, keys[n])], 1);
        unusable[n] := coalesce(unusable_counts[array_position(unusable_keys, keys[n])], 0);
        needed[n] := 0;
        read_counts[n] := 0;
        ranks[n] := -9223372036854775808;
        times[n] := 0;
        seqs[n] := 0;
        has_more[n] := true;
    END LOOP;
    WHILE missing > 0 LOOP
        SELECT (missing + sum(weight) - 1)::bigint / sum(weight)::bigint INTO rounds
        FROM unnest(weights, has_more) AS key (weight, counts) WHERE counts;
        EXIT WHEN rounds IS NULL;
        missing := wanted;
        FOR n IN 1..cardinality(keys) LOOP
            IF has_more[n] THEN
                needed[n] := least(needed[n] + weights[n] * rounds, limits[n]);
                -- The order begins with the key, so that the planner considers no other index.
                OPEN next_pages FOR
                    SELECT * FROM pages
                    WHERE queue = queue_id AND order_rank IS NOT NULL AND fairness_key <= keys[n]
                        AND (fairness_key, order_rank, order_time, order_seq) > (keys[n], ranks[n], times[n], seqs[n])
                    ORDER BY fairness_key, order_rank, order_time, order_seq
                    FOR UPDATE SKIP LOCKED;
                WHILE read_counts[n] < needed[n] + unusable[n] LOOP
                    FETCH next_pages INTO page;
                    IF NOT FOUND THEN
                        has_more[n] := false;
                        EXIT;
                    END IF;
                    RETURN NEXT page;
                    read_counts[n] := read_counts[n] + page.ready_count;
                    ranks[n] := page.order_rank;
                    times[n] := page.order_time;
                    seqs[n] := page.order_seq;
                END LOOP;
                CLOSE next_pages;
                has_more[n] := has_more[n] AND (leased_max IS NULL OR needed[n] < limits[n]);
            END IF;
            missing := missing - least(greatest(read_counts[n] - unusable[n], 0), needed[n], certain[n]);
        END LOOP;
    END LOOP;
END $$;

-- Whether a fairness key below its limit has ready items, including items that another transaction has locked.
CREATE FUNCTION has_receivable_key(queue_id integer, leased_max bigint) RETURNS boolean LANGUAGE sql AS $$
    SELECT cardinality(next_fairness_keys(
        queue_id, 0, true, 1,
        ARRAY(SELECT leased.fairness_key FROM free_leases_by_key(queue_id, leased_max) AS leased WHERE leased.free <= 0),
        '{}'
    )) > 0
$$;

-- Some ready pages without a fairness key, of a queue whose fairness was turned on later: the ones behind the position
-- that earlier calls reached, up to `items_max` items. Locks them. The position does not pass a page that another
-- transaction has locked, so the next call looks at it again.
CREATE FUNCTION lock_unkeyed_pages(queue_id integer, items_max bigint) RETURNS SETOF pages LANGUAGE plpgsql AS $$
DECLARE
    turn round_robins;
    page pages;
    locked pages;
    all_locked boolean := true;
BEGIN
    SELECT * INTO turn FROM round_robins WHERE queue = queue_id AND keyed_rank IS NOT NULL;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    FOR page IN
        SELECT * FROM pages
        WHERE queue = queue_id AND order_rank IS NOT NULL
            AND (order_rank, order_time, order_seq) > (turn.keyed_rank, turn.keyed_time, turn.keyed_seq)
        ORDER BY order_rank, order_time, order_seq
    LOOP
        IF items_max <= 0 THEN
            all_locked := false;
            EXIT;
        END IF;
        IF page.fairness_key IS NULL THEN
            SELECT * INTO locked FROM pages WHERE first_seq = page.first_seq FOR UPDATE SKIP LOCKED;
            IF FOUND THEN
                RETURN NEXT locked;
            ELSE
                all_locked := false;
            END IF;
        END IF;
        items_max := items_max - (page.last_seq - page.first_seq + 1);
        IF all_locked THEN
            turn.keyed_rank := page.order_rank;
            turn.keyed_time := page.order_time;
            turn.keyed_seq := page.order_seq;
        END IF;
    END LOOP;
    IF all_locked THEN
        turn.keyed_rank := NULL;
    END IF;
    UPDATE round_robins SET keyed_rank = turn.keyed_rank, keyed_time = turn.keyed_time, keyed_seq = turn.keyed_seq
    WHERE queue = queue_id;
END $$;

-- Pages with items that become ready, lapse or expire between two times, earliest first, up to `items_max` items. Locks
-- them. Skips pages that another transaction has locked.
CREATE FUNCTION lock_due_pages(after_time bigint, until_time bigint, items_max bigint) RETURNS SETOF pages
LANGUAGE plpgsql AS $$
DECLARE
    next_pages refcursor;
    page pages;
BEGIN
    OPEN next_pages FOR
        SELECT * FROM pages
        WHERE wake_at > after_time AND wake_at <= until_time
        ORDER BY wake_at, first_seq
        FOR UPDATE SKIP LOCKED;
    WHILE items_max > 0 LOOP
        FETCH next_pages INTO page;
        EXIT WHEN NOT FOUND;
        RETURN NEXT page;
        items_max := items_max - (page.last_seq - page.first_seq + 1);
    END LOOP;
    CLOSE next_pages;
END $$;

-- Switches to an empty partition of `payloads` when the current one holds `bytes_max` bytes.
CREATE FUNCTION rotate_payloads(bytes_max bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    current_partition smallint := (SELECT payload_partition FROM catalog);
BEGIN
    IF pg_table_size(format('payloads_%s', current_partition)::regclass) < bytes_max THEN
        RETURN;
    END IF;
    FOR next_partition IN 0..14 LOOP
        IF pg_relation_size(format('payloads_%s', next_partition)::regclass) = 0 THEN
            UPDATE catalog SET payload_partition = next_partition;
            RETURN;
        END IF;
    END LOOP;
END $$;

-- Up to `pages_max` pages that hold items between two sequence numbers.
CREATE FUNCTION pages_between(low bigint, high bigint, pages_max bigint)
RETURNS TABLE (first_seq bigint, last_seq bigint) LANGUAGE sql AS $$
    SELECT * FROM (
        SELECT * FROM (
            SELECT first_seq, last_seq FROM pages WHERE first_seq <= low ORDER BY first_seq DESC LIMIT 1
        ) AS page_at_low
        UNION ALL
        SELECT * FROM (
            SELECT first_seq, last_seq FROM terminal_pages WHERE first_seq <= low ORDER BY first_seq DESC LIMIT 1
        ) AS terminal_page_at_low
        UNION ALL
        SELECT first_seq, last_seq FROM pages WHERE first_seq > low AND first_seq <= high
        UNION ALL
        SELECT first_seq, last_seq FROM terminal_pages WHERE first_seq > low AND first_seq <= high
    ) AS page
    WHERE page.last_seq >= low
    LIMIT pages_max
$$;

-- Truncates a partition of `payloads` if items need none of it, or at most an eighth, which moves to partition 15. Returns
-- whether it did.
CREATE FUNCTION reclaim_payload_partition(part smallint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    pages_max CONSTANT bigint := 1000;
    low bigint;
    high bigint;
    page_count bigint;
    needed bigint[];
    needed_bytes bigint;
BEGIN
    SELECT min(first_seq), max(last_seq) INTO low, high FROM payloads WHERE partition = part;
    IF low IS NOT NULL THEN
        SELECT count(*) INTO page_count FROM pages_between(low, high, pages_max);
        IF page_count = pages_max THEN
            RETURN false;
        END IF;
        needed := ARRAY(
            SELECT DISTINCT payloads.first_seq FROM pages_between(low, high, pages_max) AS page
            JOIN payloads ON payloads.partition = part
                AND payloads.first_seq <= page.last_seq AND payloads.last_seq >= page.first_seq
        );
        SELECT coalesce(sum(octet_length(bytes)), 0) INTO needed_bytes
        FROM payloads WHERE partition = part AND first_seq = ANY (needed);
        IF needed_bytes > pg_table_size(format('payloads_%s', part)::regclass) / 8 THEN
            RETURN false;
        END IF;
        INSERT INTO payloads (partition, first_seq, last_seq, bytes)
        SELECT 15, first_seq, last_seq, bytes FROM payloads WHERE partition = part AND first_seq = ANY (needed);
    END IF;
    EXECUTE format('TRUNCATE payloads_%s', part);
    RETURN true;
END $$;

-- Truncates partitions of `terminal_pages` and `payloads` that are not needed. One server at a time does it. A partition
-- that another transaction has locked is left for the next call. Returns how many it truncated.
CREATE FUNCTION reclaim_disk(lock_class integer) RETURNS integer LANGUAGE plpgsql SET lock_timeout = '50ms' AS $$
DECLARE
    name text;
    low bigint;
    high bigint;
    is_empty boolean;
    reclaimed integer := 0;
BEGIN
    IF NOT pg_try_advisory_xact_lock(lock_class, -2) THEN
        RETURN 0;
    END IF;
    DELETE FROM payloads
    WHERE partition = 15 AND NOT EXISTS (SELECT 1 FROM pages_between(payloads.first_seq, payloads.last_seq, 1));
    FOR part IN 0..24 LOOP
        name := format('terminal_pages_%s', part);
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
        name := format('payloads_%s', part);
        CONTINUE WHEN part = (SELECT payload_partition FROM catalog) OR pg_relation_size(name::regclass) = 0;
        -- A partition that many pages need is not worth a lock.
        SELECT min(first_seq), max(last_seq) INTO low, high FROM payloads WHERE payloads.partition = part;
        CONTINUE WHEN (SELECT count(*) FROM pages_between(low, high, 1000)) = 1000;
        BEGIN
            EXECUTE format('LOCK TABLE %I IN ACCESS EXCLUSIVE MODE', name);
            reclaimed := reclaimed + reclaim_payload_partition(part::smallint)::integer;
        EXCEPTION WHEN lock_not_available THEN
        END;
    END LOOP;
    RETURN reclaimed;
END $$;

-- Switches to the next partition of `events`, and truncates that first, when the current one holds `bytes_max` bytes or
-- is `age_max` old. One server at a time does it.
CREATE FUNCTION rotate_events(lock_class integer, bytes_max bigint, age_max bigint, now bigint) RETURNS void
LANGUAGE plpgsql SET lock_timeout = '50ms' AS $$
DECLARE
    current_partition smallint;
    since bigint;
    next_partition smallint;
    last_number bigint;
BEGIN
    -- Checks first without the lock, then again with it: another server may have rotated in between.
    FOR round IN 1..2 LOOP
        SELECT event_partition, event_partition_since INTO current_partition, since FROM catalog;
        IF pg_relation_size(format('events_%s', current_partition)::regclass) = 0 THEN
            RETURN;
        END IF;
        IF since IS NOT NULL AND now - since < age_max
            AND pg_table_size(format('events_%s', current_partition)::regclass) < bytes_max
        THEN
            RETURN;
        END IF;
        IF round = 1 AND NOT pg_try_advisory_xact_lock(lock_class, -3) THEN
            RETURN;
        END IF;
    END LOOP;
    IF since IS NULL THEN
        UPDATE catalog SET event_partition_since = now;
        RETURN;
    END IF;
    next_partition := (current_partition + 1) % 8;
    BEGIN
        EXECUTE format('LOCK TABLE events_%s IN ACCESS EXCLUSIVE MODE', next_partition);
        EXECUTE format('SELECT max(number) FROM events_%s', next_partition) INTO last_number;
        IF last_number IS NOT NULL THEN
            EXECUTE format('TRUNCATE events_%s', next_partition);
        END IF;
        UPDATE catalog
        SET event_partition = next_partition, event_partition_since = now,
            events_removed_through = greatest(events_removed_through, coalesce(last_number, 0));
    EXCEPTION WHEN lock_not_available THEN
    END;
END $$;
