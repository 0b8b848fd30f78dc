-- Limits on what is processed of a key at once. In a queue that has one, `leased` says how many items of a page are processed,
-- and every page with such items is of one key. Elsewhere it is NULL: nobody counts there.
ALTER TABLE pages ADD COLUMN leased integer;
CREATE INDEX pages_leased ON pages (queue, key) WHERE leased > 0;

-- Of the keys of a queue that have items in hand: how many more may be, if `most` may be at once; and how many at best, if all
-- that the caller has locked ends. A row that a transaction has locked bears its number.
CREATE FUNCTION rooms_of_keys(integer, most bigint) RETURNS TABLE (key bigint, room bigint, at_best bigint) LANGUAGE sql AS $$
    SELECT pages.key, most - sum(leased),
        most - coalesce(sum(leased) FILTER (WHERE pages.xmax IS DISTINCT FROM pg_current_xact_id_if_assigned()::xid), 0)
    FROM pages WHERE queue = $1 AND leased > 0
    GROUP BY pages.key
$$;

DROP FUNCTION receivable_in_turn(integer, bigint, bigint[], integer[]);
DROP FUNCTION keys_in_turn(integer, bigint, boolean, bigint);

-- Keys of a queue that have something ready, up to so many, beginning behind the one whose turn it was, or with it if it
-- goes on. Those of `full_keys` are left out, and those of `unsure` are not counted.
CREATE FUNCTION keys_in_turn(integer, whose bigint, goes_on boolean, many bigint, full_keys bigint[], unsure bigint[])
RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    keys bigint[] := '{}';
    -- Two stretches of the circle: behind its beginning, up to its end.
    begins bigint[] := ARRAY[whose - goes_on::integer, -1];
    ends bigint[] := ARRAY[9223372036854775807, whose - goes_on::integer];
    found bigint[];
    next bigint;
BEGIN
    FOR n IN 1..2 LOOP
        WITH RECURSIVE walk (key) AS (
            (SELECT key FROM pages WHERE queue = $1 AND key > begins[n] AND rank IS NOT NULL ORDER BY key LIMIT 1)
            UNION ALL
            SELECT (
                SELECT key FROM pages WHERE queue = $1 AND key > walk.key AND rank IS NOT NULL ORDER BY key LIMIT 1
            ) FROM walk WHERE walk.key < ends[n]
        ), has_room AS (
            SELECT key FROM walk
            WHERE key <= ends[n] AND key NOT IN (SELECT unnest(full_keys))
            LIMIT many + cardinality(unsure)
        )
        SELECT coalesce(array_agg(key ORDER BY key), '{}') INTO found FROM has_room;
        FOREACH next IN ARRAY found LOOP
            EXIT WHEN many <= 0;
            keys := keys || next;
            many := many - (next <> ALL (unsure))::integer;
        END LOOP;
        EXIT WHEN many <= 0;
    END LOOP;
    RETURN keys;
END $$;

-- The next ready pages of a queue whose keys take turns, locked without waiting, until they hold as many items as are
-- wanted: of each key as many as come in its turns, and as it has room for if no more than `most` may be in hand. Room that
-- somebody has yet to make is not counted on. `$3` are the keys whose weight is not 1, `$4` their weights. Of the keys `$6` so
-- many ready items as `$7` says cannot be given out: so many more of these, and so many more keys.
CREATE FUNCTION receivable_in_turn(integer, wanted bigint, bigint[], integer[], most bigint, bigint[], bigint[])
RETURNS SETOF pages LANGUAGE plpgsql AS $$
DECLARE
    turn turns;
    keys bigint[];
    -- Of keys that have items in hand: how many more may be, for sure and at best.
    leased bigint[] := '{}';
    sure bigint[] := '{}';
    at_best bigint[] := '{}';
    full_keys bigint[] := '{}';
    unsure bigint[] := '{}';
    -- Of each key: its weight, how many of its items cannot be given out, how many there is room for and how many of these are counted on (NULL: any number), how
    -- many may come and how many are there, and the last page that was looked at.
    weights bigint[];
    spoiled bigint[];
    rooms bigint[];
    counted bigint[];
    needed bigint[];
    held bigint[];
    ranks bigint[];
    places bigint[];
    foremosts bigint[];
    goes_on boolean[];
    here refcursor;
    page pages;
    missing bigint := wanted;
    rounds bigint;
BEGIN
    SELECT * INTO turn FROM turns WHERE queue = $1;
    IF NOT FOUND THEN
        turn.key := 0;
        turn.given := 0;
    END IF;
    IF most IS NOT NULL THEN
        SELECT coalesce(array_agg(of.key), '{}'), array_agg(of.room), array_agg(of.at_best),
            coalesce(array_agg(of.key) FILTER (WHERE of.at_best <= 0), '{}'),
            coalesce(array_agg(of.key) FILTER (WHERE of.room <= 0 AND of.at_best > 0), '{}')
        INTO leased, sure, at_best, full_keys, unsure
        FROM rooms_of_keys($1, most) AS of;
    END IF;
    keys := keys_in_turn(
        $1, turn.key, turn.given < coalesce($4[array_position($3, turn.key)], 1), wanted + cardinality($6), full_keys,
        unsure
    );
    IF most IS NOT NULL THEN
        SELECT array_agg(coalesce(of.at_best, most) ORDER BY n), array_agg(greatest(coalesce(of.room, most), 0) ORDER BY n)
        INTO rooms, counted
        FROM unnest(keys) WITH ORDINALITY AS asked (key, n)
        LEFT JOIN unnest(leased, sure, at_best) AS of (key, room, at_best) ON of.key = asked.key;
    END IF;
    FOR n IN 1..cardinality(keys) LOOP
        weights[n] := coalesce($4[array_position($3, keys[n])], 1);
        spoiled[n] := coalesce($7[array_position($6, keys[n])], 0);
        needed[n] := 0;
        held[n] := 0;
        ranks[n] := -9223372036854775808;
        places[n] := 0;
        foremosts[n] := 0;
        goes_on[n] := true;
    END LOOP;
    WHILE missing > 0 LOOP
        SELECT (missing + sum(weight) - 1)::bigint / sum(weight)::bigint INTO rounds
        FROM unnest(weights, goes_on) AS key (weight, counts) WHERE counts;
        EXIT WHEN rounds IS NULL;
        missing := wanted;
        FOR n IN 1..cardinality(keys) LOOP
            IF goes_on[n] THEN
                needed[n] := least(needed[n] + weights[n] * rounds, rooms[n]);
                -- By key first, so that no other index is thought of.
                OPEN here FOR
                    SELECT * FROM pages
                    WHERE queue = $1 AND rank IS NOT NULL AND key <= keys[n]
                        AND (key, rank, place, foremost) > (keys[n], ranks[n], places[n], foremosts[n])
                    ORDER BY key, rank, place, foremost
                    FOR UPDATE SKIP LOCKED;
                WHILE held[n] < needed[n] + spoiled[n] LOOP
                    FETCH here INTO page;
                    IF NOT FOUND THEN
                        goes_on[n] := false;
                        EXIT;
                    END IF;
                    RETURN NEXT page;
                    held[n] := held[n] + page.ready;
                    ranks[n] := page.rank;
                    places[n] := page.place;
                    foremosts[n] := page.foremost;
                END LOOP;
                CLOSE here;
                goes_on[n] := goes_on[n] AND (most IS NULL OR needed[n] < rooms[n]);
            END IF;
            missing := missing - least(greatest(held[n] - spoiled[n], 0), needed[n], counted[n]);
        END LOOP;
    END LOOP;
END $$;

-- Whether a key of a queue that has room has something ready, whoever holds it.
CREATE FUNCTION is_receivable_in_turn(integer, most bigint) RETURNS boolean LANGUAGE sql AS $$
    SELECT cardinality(keys_in_turn(
        $1, 0, true, 1, ARRAY(SELECT key FROM rooms_of_keys($1, most) AS of WHERE of.room <= 0), '{}'
    )) > 0
$$;
