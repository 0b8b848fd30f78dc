-- The id of a transaction that begins now: later than that of any that has written something.
SELECT pg_current_xact_id()::text::bigint
