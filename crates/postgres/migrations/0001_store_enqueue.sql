-- Schema version 1, part 3 of 3: `enqueue`, which submits from SQL in the caller's own transaction.

-- `enqueue` inserts a row here, and servers submit it.
CREATE TABLE inbox (
    position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id uuid NOT NULL,
    queue text COLLATE "C" NOT NULL,
    priority smallint NOT NULL,
    -- NULL: ready at once.
    ready_at bigint,
    idempotency_key text,
    params jsonb NOT NULL,
    tags jsonb NOT NULL,
    inputs jsonb NOT NULL,
    payload bytea,
    item_group text,
    fairness_key text,
    source text,
    parent uuid,
    max_retries integer,
    -- In milliseconds.
    expire_after bigint,
    enqueued_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    enqueued_by name NOT NULL DEFAULT session_user
);
CREATE UNIQUE INDEX inbox_ids ON inbox (id);
CREATE UNIQUE INDEX inbox_keys ON inbox (queue, idempotency_key) WHERE idempotency_key IS NOT NULL;

-- Entries that could not be submitted, with the reason. Only an operator removes them.
CREATE TABLE inbox_refused (
    LIKE inbox,
    refused_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    code text NOT NULL,
    reason text NOT NULL,
    PRIMARY KEY (position)
);

-- The functions below find tables in this schema only, not in schemas or temporary tables of the caller.
SELECT set_config('search_path', current_schema() || ', pg_temp', true);

-- Raises an error unless all given names are declared by the queue's schema, and all required names are given.
CREATE FUNCTION enqueue_check_names(what text, declared jsonb, given jsonb) RETURNS void
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    wrong text;
    names text := coalesce((SELECT string_agg(name, ', ' ORDER BY name) FROM jsonb_object_keys(declared) AS name), 'none');
BEGIN
    SELECT name INTO wrong FROM jsonb_object_keys(given) AS name WHERE NOT declared ? name ORDER BY name LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'unknown % "%"', what, wrong
            USING ERRCODE = 'TW422', HINT = format('the queue declares: %s', names);
    END IF;
    SELECT key INTO wrong FROM jsonb_each(declared) AS slot (key, required)
    WHERE required = 'true' AND NOT given ? key ORDER BY key LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION '% "%" is missing', what, wrong
            USING ERRCODE = 'TW422', HINT = format('the queue declares: %s', names);
    END IF;
END
$$;

-- Raises an error unless a text has 1 to `bytes_max` bytes.
CREATE FUNCTION enqueue_check_text(what text, given text, bytes_max integer) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path FROM CURRENT AS $$
BEGIN
    IF octet_length(given) NOT BETWEEN 1 AND bytes_max THEN
        RAISE EXCEPTION '% "%" has % bytes', what, left(given, 40), octet_length(given)
            USING ERRCODE = 'TW400', HINT = format('use 1 to %s bytes', bytes_max);
    END IF;
END
$$;

-- Raises an error unless a value is an object with at most `names_max` names of at most `name_bytes_max` bytes. With
-- `text_bytes_max`, its values must be texts of at most that many bytes.
CREATE FUNCTION enqueue_check_object(
    what text, given jsonb, names_max integer, name_bytes_max integer, text_bytes_max integer
) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path FROM CURRENT AS $$
DECLARE
    name text;
    value jsonb;
    names integer := 0;
BEGIN
    IF given IS NULL OR jsonb_typeof(given) <> 'object' THEN
        RAISE EXCEPTION '% is %, not an object', what, coalesce(left(given::text, 40), 'NULL')
            USING ERRCODE = 'TW400', HINT = 'use {"name": value}, or leave it out';
    END IF;
    FOR name, value IN SELECT * FROM jsonb_each(given) LOOP
        names := names + 1;
        PERFORM enqueue_check_text('a name of ' || what, name, name_bytes_max);
        IF text_bytes_max IS NOT NULL AND jsonb_typeof(value) <> 'string' THEN
            RAISE EXCEPTION '% "%" is %, not a text', what, name, left(value::text, 40)
                USING ERRCODE = 'TW400', HINT = 'put it in quotes';
        END IF;
        IF octet_length(value #>> '{}') > text_bytes_max THEN
            RAISE EXCEPTION '% "%" has % bytes', what, name, octet_length(value #>> '{}')
                USING ERRCODE = 'TW400', HINT = format('use at most %s bytes', text_bytes_max);
        END IF;
    END LOOP;
    IF names > names_max THEN
        RAISE EXCEPTION '% has % names', what, names
            USING ERRCODE = 'TW400', HINT = format('use at most %s', names_max);
    END IF;
END
$$;

-- Submits an item when the transaction commits, and returns its id. Runs with the rights of its owner, so that a caller
-- needs no right on any table.
CREATE FUNCTION enqueue(
    queue text,
    params jsonb DEFAULT '{}',
    payload bytea DEFAULT NULL,
    payload_text text DEFAULT NULL,
    priority integer DEFAULT 0,
    delay interval DEFAULT NULL,
    ready_at timestamptz DEFAULT NULL,
    idempotency_key text DEFAULT NULL,
    tags jsonb DEFAULT '{}',
    inputs jsonb DEFAULT '{}',
    id uuid DEFAULT NULL,
    item_group text DEFAULT NULL,
    fairness_key text DEFAULT NULL,
    source text DEFAULT NULL,
    parent uuid DEFAULT NULL,
    max_retries integer DEFAULT NULL,
    expire_after interval DEFAULT NULL
) RETURNS uuid
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
    queue_id integer;
    definition jsonb;
    body bytea := enqueue.payload;
    due timestamptz := enqueue.ready_at;
    owner uuid;
    new_id uuid := coalesce(enqueue.id, gen_random_uuid());
    entry bigint;
BEGIN
    SELECT q.id, q.definition::jsonb INTO queue_id, definition
    FROM queues q WHERE q.name = enqueue.queue AND q.definition IS NOT NULL;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no queue "%"', left(coalesce(enqueue.queue, 'NULL'), 255)
            USING ERRCODE = 'TW404', HINT = 'create it with `towline queue create`, or name another';
    END IF;
    IF definition -> 'state' <> '"open"' THEN
        RAISE EXCEPTION 'queue "%" is closed', enqueue.queue
            USING ERRCODE = 'TW409', HINT = 'submit to an open queue: a closed one never opens again';
    END IF;

    PERFORM enqueue_check_object('params', enqueue.params, 256, 255, NULL);
    PERFORM enqueue_check_object('tags', enqueue.tags, 32, 128, 512);
    PERFORM enqueue_check_object('inputs', enqueue.inputs, 64, 63, 255);
    PERFORM enqueue_check_text('idempotency_key', enqueue.idempotency_key, 512);
    PERFORM enqueue_check_text('item_group', enqueue.item_group, 255);
    PERFORM enqueue_check_text('fairness_key', enqueue.fairness_key, 255);
    PERFORM enqueue_check_text('source', enqueue.source, 255);
    IF octet_length(enqueue.params::text) > 1048576 THEN
        RAISE EXCEPTION 'params has % bytes', octet_length(enqueue.params::text)
            USING ERRCODE = 'TW413', HINT = 'use at most 1 MiB; put more into the payload or a buffer';
    END IF;
    IF NOT coalesce(enqueue.priority BETWEEN -32768 AND 32767, false) THEN
        RAISE EXCEPTION 'priority % is out of range', coalesce(enqueue.priority::text, 'NULL')
            USING ERRCODE = 'TW400', HINT = 'use -32768 (first) to 32767 (last)';
    END IF;
    IF enqueue.max_retries NOT BETWEEN 0 AND 10000 THEN
        RAISE EXCEPTION 'max_retries % is out of range', enqueue.max_retries
            USING ERRCODE = 'TW400', HINT = 'use 0 to 10000';
    END IF;
    IF enqueue.expire_after <= interval '0' OR enqueue.expire_after > interval '36600 days' THEN
        RAISE EXCEPTION 'expire_after % is out of range', enqueue.expire_after
            USING ERRCODE = 'TW400', HINT = 'use more than nothing, and at most 36600 days';
    END IF;
    IF enqueue.delay IS NOT NULL THEN
        IF due IS NOT NULL THEN
            RAISE EXCEPTION 'delay % and ready_at % are both given', enqueue.delay, due
                USING ERRCODE = 'TW400', HINT = 'use one of them';
        END IF;
        IF enqueue.delay NOT BETWEEN interval '0' AND interval '36600 days' THEN
            RAISE EXCEPTION 'delay % is out of range', enqueue.delay
                USING ERRCODE = 'TW400', HINT = 'use 0 to 36600 days';
        END IF;
        due := clock_timestamp() + enqueue.delay;
    END IF;
    IF due NOT BETWEEN timestamptz '1970-01-01 00:00:00Z' AND timestamptz '9999-12-31 23:59:59Z' THEN
        RAISE EXCEPTION 'ready_at % is out of range', due
            USING ERRCODE = 'TW400', HINT = 'use 1970 to 9999';
    END IF;
    IF enqueue.payload_text IS NOT NULL THEN
        IF body IS NOT NULL THEN
            RAISE EXCEPTION 'payload and payload_text are both given'
                USING ERRCODE = 'TW400', HINT = 'use one of them';
        END IF;
        body := convert_to(enqueue.payload_text, 'UTF8');
    END IF;
    IF octet_length(body) > 4194304 THEN
        RAISE EXCEPTION 'the payload has % bytes', octet_length(body)
            USING ERRCODE = 'TW413', HINT = 'use at most 4 MiB; put more into a buffer';
    END IF;
    IF EXISTS (SELECT FROM jsonb_each(definition -> 'schema') AS part (name, slots) WHERE slots <> '{}') THEN
        PERFORM enqueue_check_names('input', definition #> '{schema,inputs}', enqueue.inputs);
        PERFORM enqueue_check_names('input parameter', definition #> '{schema,input_params}', enqueue.params);
    END IF;
    IF EXISTS (SELECT FROM chosen_ids c WHERE c.id = new_id) OR EXISTS (SELECT FROM inbox i WHERE i.id = new_id) THEN
        RAISE EXCEPTION 'id % is taken', new_id
            USING ERRCODE = 'TW409', HINT = 'leave it out, or make a new one for every item';
    END IF;

    INSERT INTO inbox (
        id, queue, priority, ready_at, idempotency_key, params, tags, inputs, payload, item_group, fairness_key, source,
        parent, max_retries, expire_after
    )
    VALUES (
        new_id, enqueue.queue, enqueue.priority, floor(extract(epoch FROM due) * 1000)::bigint, enqueue.idempotency_key,
        enqueue.params, enqueue.tags, enqueue.inputs, body, enqueue.item_group, enqueue.fairness_key, enqueue.source,
        enqueue.parent, enqueue.max_retries, floor(extract(epoch FROM enqueue.expire_after) * 1000)::bigint
    )
    -- Waits for a transaction that enqueues the same key at the same time.
    ON CONFLICT (queue, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
    RETURNING position INTO entry;
    IF enqueue.idempotency_key IS NOT NULL THEN
        -- One key, one item: still in the inbox, or submitted, perhaps a moment ago.
        SELECT k.id INTO owner FROM keys k
        WHERE k.queue = queue_id AND k.key = convert_to(enqueue.idempotency_key, 'UTF8') AND NOT k.freed;
        IF FOUND THEN
            DELETE FROM inbox i WHERE i.position = entry;
            RETURN owner;
        END IF;
        SELECT i.id INTO owner FROM inbox i
        WHERE i.queue = enqueue.queue AND i.idempotency_key = enqueue.idempotency_key;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'idempotency_key "%" was taken over at this moment', left(enqueue.idempotency_key, 40)
                USING ERRCODE = '40001', HINT = 'try the transaction again';
        END IF;
        new_id := owner;
    END IF;
    -- PostgreSQL sends it at the commit, and once however many items the transaction enqueues.
    PERFORM pg_notify('towline_' || to_hex(c.salt), 'inbox') FROM catalog c;
    RETURN new_id;
END
$$;

-- The right to use the schema does not include the right to submit.
REVOKE ALL ON FUNCTION
    enqueue(text, jsonb, bytea, text, integer, interval, timestamptz, text, jsonb, jsonb, uuid, text, text, text, uuid,
            integer, interval),
    enqueue_check_names(text, jsonb, jsonb),
    enqueue_check_text(text, text, integer),
    enqueue_check_object(text, jsonb, integer, integer, integer)
FROM PUBLIC;
