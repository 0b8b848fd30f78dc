CREATE TYPE JobState AS ENUM ('available', 'completed', 'failed', 'running', 'paused');
CREATE TABLE cyclotron_jobs (
    id uuid PRIMARY KEY,
    team_id int NOT NULL,
    function_id uuid,
    created timestamptz NOT NULL DEFAULT now(),
    lock_id uuid,
    last_heartbeat timestamptz,
    janitor_touch_count smallint NOT NULL DEFAULT 0,
    transition_count smallint NOT NULL DEFAULT 0,
    last_transition timestamptz NOT NULL DEFAULT now(),
    queue_name text NOT NULL,
    state JobState NOT NULL,
    priority smallint NOT NULL,
    scheduled timestamptz NOT NULL,
    vm_state bytea,
    metadata bytea,
    parameters bytea,
    blob bytea
);
CREATE TABLE cyclotron_dead_letter_metadata (
    job_id uuid PRIMARY KEY,
    original_queue_name text NOT NULL,
    reason text NOT NULL,
    dlq_time timestamptz NOT NULL
);
-- The example of 1,200 jobs: the first one is the largest.
INSERT INTO cyclotron_jobs (id, team_id, function_id, queue_name, state, priority, scheduled, vm_state, metadata, parameters, blob)
SELECT ('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, n % 3,
    CASE WHEN n % 2 = 0 THEN '11111111-2222-4333-8444-555555555555'::uuid END,
    CASE WHEN n % 5 = 0 THEN 'hogoverflow' ELSE 'hog' END,
    'available', n % 4 - 2, CASE WHEN n = 7 THEN '2099-01-01T00:00:00Z' ELSE '2024-01-01T00:00:00Z'::timestamptz + n * interval '1 s' END,
    convert_to('vm ' || n, 'UTF8'), NULL, convert_to('{"n":' || n || '}', 'UTF8'),
    CASE WHEN n = 1 THEN convert_to(repeat('large', 200000), 'UTF8') WHEN n % 10 = 3 THEN '\x00ff'::bytea END
FROM generate_series(1, 1200) n;
INSERT INTO cyclotron_jobs (id, team_id, queue_name, state, priority, scheduled, lock_id)
SELECT ('a1900000-0000-4000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, 1, queue, state::JobState, 0, now(), lock
FROM (VALUES
    (1, 'hog', 'paused', NULL),
    (2, 'hog', 'running', '99999999-2222-4333-8444-555555555555'::uuid),
    (3, 'hog', 'completed', NULL),
    (4, 'hog', 'failed', NULL),
    (5, 'hog', 'failed', NULL),
    (6, '_cyclotron_dead_letter', 'available', NULL)
) AS job (n, queue, state, lock);
INSERT INTO cyclotron_dead_letter_metadata VALUES ('a1900000-0000-4000-8000-000000000006', 'hog', 'poison pill', now());
