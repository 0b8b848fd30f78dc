-- Rows of these items in the tables that most items have no rows in.
WITH deleted_edits AS (DELETE FROM edits WHERE seq = ANY ($1::bigint[])),
     deleted_errors AS (DELETE FROM errors WHERE seq = ANY ($1::bigint[])),
     deleted_outcomes AS (DELETE FROM outcomes WHERE seq = ANY ($1::bigint[])),
     deleted_tags AS (DELETE FROM tags WHERE seq = ANY ($1::bigint[])),
     deleted_keys AS (DELETE FROM keys WHERE seq = ANY ($1::bigint[]))
DELETE FROM chosen_ids WHERE seq = ANY ($1::bigint[])
