WITH next AS (UPDATE catalog SET version = version + 1 RETURNING version),
     gone_pages AS (DELETE FROM pages WHERE queue = $1 RETURNING first_seq, last_seq),
     gone_finished AS (DELETE FROM finished WHERE queue = $1 RETURNING first_seq, last_seq),
     gone AS (SELECT * FROM gone_pages UNION ALL SELECT * FROM gone_finished),
     gone_edits AS (DELETE FROM edits USING gone WHERE seq BETWEEN first_seq AND last_seq),
     gone_errors AS (DELETE FROM errors USING gone WHERE seq BETWEEN first_seq AND last_seq),
     gone_outcomes AS (DELETE FROM outcomes USING gone WHERE seq BETWEEN first_seq AND last_seq),
     gone_tags AS (DELETE FROM tags USING gone WHERE seq BETWEEN first_seq AND last_seq),
     gone_keys AS (DELETE FROM keys USING gone WHERE seq BETWEEN first_seq AND last_seq),
     gone_ids AS (DELETE FROM chosen_ids USING gone WHERE seq BETWEEN first_seq AND last_seq),
     gone_counters AS (DELETE FROM counters WHERE queue = $1),
     gone_tallies AS (DELETE FROM tallies WHERE queue = $1),
     gone_rates AS (DELETE FROM rates WHERE queue = $1)
UPDATE queues SET name = NULL, definition = NULL, version = next.version FROM next WHERE queues.id = $1
