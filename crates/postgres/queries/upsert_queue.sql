WITH next AS (UPDATE catalog SET version = version + 1 RETURNING version)
INSERT INTO queues (id, name, definition, version)
SELECT $1, $2, $3, next.version FROM next
ON CONFLICT (id) DO UPDATE SET definition = excluded.definition, version = excluded.version
