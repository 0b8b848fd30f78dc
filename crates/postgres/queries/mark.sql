UPDATE sessions SET batch = $2, decided_at = $3 WHERE session = $1
