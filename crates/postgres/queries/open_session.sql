-- The session holds the lock until its connection ends.
WITH new AS (SELECT nextval('session_sequence')::integer AS session),
     locked AS (SELECT session, pg_advisory_lock($1, session) FROM new)
INSERT INTO sessions (session, batch, decided_at) SELECT session, 0, 0 FROM locked RETURNING session
