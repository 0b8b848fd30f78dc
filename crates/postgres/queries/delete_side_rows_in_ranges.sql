-- Rows of the items in these ranges of numbers, in the tables that most items have no rows in.
WITH range AS (SELECT * FROM unnest($1::bigint[], $2::bigint[]) AS range (low, high)),
     deleted_edits AS (DELETE FROM edits USING range WHERE seq BETWEEN low AND high),
     deleted_errors AS (DELETE FROM errors USING range WHERE seq BETWEEN low AND high),
     deleted_outcomes AS (DELETE FROM outcomes USING range WHERE seq BETWEEN low AND high),
     deleted_tags AS (DELETE FROM tags USING range WHERE seq BETWEEN low AND high),
     deleted_keys AS (DELETE FROM keys USING range WHERE seq BETWEEN low AND high)
DELETE FROM chosen_ids USING range WHERE seq BETWEEN low AND high
