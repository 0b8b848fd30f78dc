-- What these items have in tables that most items have nothing in.
WITH gone_edits AS (DELETE FROM edits WHERE seq = ANY ($1::bigint[])),
     gone_errors AS (DELETE FROM errors WHERE seq = ANY ($1::bigint[])),
     gone_outcomes AS (DELETE FROM outcomes WHERE seq = ANY ($1::bigint[])),
     gone_tags AS (DELETE FROM tags WHERE seq = ANY ($1::bigint[])),
     gone_keys AS (DELETE FROM keys WHERE seq = ANY ($1::bigint[]))
DELETE FROM chosen_ids WHERE seq = ANY ($1::bigint[])
