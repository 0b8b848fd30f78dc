-- The lock is held for as long as the session lives.
WITH fresh AS (SELECT nextval('session_sequence')::integer AS session),
     held AS (SELECT session, pg_advisory_lock($1, session) FROM fresh)
INSERT INTO sessions (session, batch, decided_at) SELECT session, 0, 0 FROM held RETURNING session
