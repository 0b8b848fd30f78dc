-- The last number that is not kept any more, the last one that is visible, and the transactions that tell something just now.
-- Each holds its lock from before it draws a number until what it told is visible; locks are looked at after the snapshot was taken.
SELECT
    events_gone,
    coalesce((SELECT max(number) FROM events), events_gone),
    ARRAY(
        SELECT virtualtransaction
        FROM pg_locks
        WHERE locktype = 'relation'
          AND relation = 'events'::regclass
          AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
          AND mode = 'RowExclusiveLock'
          AND granted
    )
FROM catalog
