-- Keys that take turns. A page of a queue in which they do holds items of one key: `key` stands for it, 0 for items without
-- one. Pages of other queues have none.
ALTER TABLE pages ADD COLUMN key bigint;
CREATE INDEX pages_by_key ON pages (queue, key, rank, place, foremost) WHERE key IS NOT NULL AND rank IS NOT NULL;

-- Whose turn it is, and how many items it has given: one row for all servers. Whoever reads or changes it holds the lock of
-- its queue. What was ready when keys began to take turns is in pages of one key up to `rank`, `place` and `foremost`; NULL:
-- all of it.
CREATE TABLE turns (
    queue integer PRIMARY KEY,
    key bigint NOT NULL,
    given integer NOT NULL,
    rank bigint,
    place bigint,
    foremost bigint
) WITH (fillfactor = 30);

-- Keys of a queue that have something ready, up to so many, beginning behind the one whose turn it was, or with it if it
-- goes on.
CREATE FUNCTION keys_in_turn(integer, whose bigint, goes_on boolean, many bigint) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    keys bigint[] := '{}';
    last bigint := whose;
    around boolean := false;
BEGIN
    IF goes_on THEN
        last := whose - 1;
    END IF;
    WHILE cardinality(keys) < many LOOP
        SELECT key INTO last FROM pages
        WHERE queue = $1 AND key > last AND rank IS NOT NULL
        ORDER BY key LIMIT 1;
        IF NOT FOUND THEN
            EXIT WHEN around;
            around := true;
            last := -1;
            CONTINUE;
        END IF;
        EXIT WHEN around AND (last > whose OR last = whose AND goes_on);
        keys := keys || last;
    END LOOP;
    RETURN keys;
END $$;

-- The next ready pages of a queue whose keys take turns, locked without waiting, until they hold as many items as are
-- wanted: of each key as many as come in its turns. `$3` are the keys whose weight is not 1, `$4` their weights.
CREATE FUNCTION receivable_in_turn(integer, wanted bigint, bigint[], integer[]) RETURNS SETOF pages LANGUAGE plpgsql AS $$
DECLARE
    turn turns;
    keys bigint[];
    -- Of each key: its weight, how many items may come and how many are there, and the last page that was looked at.
    weights bigint[];
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
    keys := keys_in_turn($1, turn.key, turn.given < coalesce($4[array_position($3, turn.key)], 1), wanted);
    FOR n IN 1..cardinality(keys) LOOP
        weights[n] := coalesce($4[array_position($3, keys[n])], 1);
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
                needed[n] := needed[n] + weights[n] * rounds;
                -- By key first, so that no other index is thought of.
                OPEN here FOR
                    SELECT * FROM pages
                    WHERE queue = $1 AND rank IS NOT NULL AND key <= keys[n]
                        AND (key, rank, place, foremost) > (keys[n], ranks[n], places[n], foremosts[n])
                    ORDER BY key, rank, place, foremost
                    FOR UPDATE SKIP LOCKED;
                WHILE held[n] < needed[n] LOOP
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
            END IF;
            missing := missing - least(held[n], needed[n]);
        END LOOP;
    END LOOP;
END $$;

-- Some of the ready pages that are of no key yet, from where the last ones were found, locked without waiting, up to so many
-- items. From one that somebody else holds, whoever comes next looks again.
CREATE FUNCTION without_key(integer, many bigint) RETURNS SETOF pages LANGUAGE plpgsql AS $$
DECLARE
    turn turns;
    page pages;
    held pages;
    is_all boolean := true;
BEGIN
    SELECT * INTO turn FROM turns WHERE queue = $1 AND rank IS NOT NULL;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    FOR page IN
        SELECT * FROM pages
        WHERE queue = $1 AND rank IS NOT NULL AND (rank, place, foremost) > (turn.rank, turn.place, turn.foremost)
        ORDER BY rank, place, foremost
    LOOP
        IF many <= 0 THEN
            is_all := false;
            EXIT;
        END IF;
        IF page.key IS NULL THEN
            SELECT * INTO held FROM pages WHERE first_seq = page.first_seq FOR UPDATE SKIP LOCKED;
            IF FOUND THEN
                RETURN NEXT held;
            ELSE
                is_all := false;
            END IF;
        END IF;
        many := many - (page.last_seq - page.first_seq + 1);
        IF is_all THEN
            turn.rank := page.rank;
            turn.place := page.place;
            turn.foremost := page.foremost;
        END IF;
    END LOOP;
    IF is_all THEN
        turn.rank := NULL;
    END IF;
    UPDATE turns SET rank = turn.rank, place = turn.place, foremost = turn.foremost WHERE queue = $1;
END $$;
