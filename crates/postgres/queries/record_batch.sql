-- Replaces the row of the batch before.
WITH previous AS (DELETE FROM sessions WHERE session = $1::integer AND batch = $2::bigint - 1)
INSERT INTO sessions (session, batch, decided_at) VALUES ($1, $2, $3)
