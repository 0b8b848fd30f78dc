-- The last removed number, the last visible number, and the transactions that are writing events. Such a transaction locks
-- the table before it draws a number, and holds the lock until its row is visible. PostgreSQL reads the locks
-- after it took the snapshot of this statement.
SELECT
    events_removed_through,
    coalesce((SELECT max(number) FROM events), events_removed_through),
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
