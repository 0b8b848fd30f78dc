-- What the items of finished pages have in tables that most items have nothing in.
WITH gone AS (SELECT * FROM unnest($1::bigint[], $2::bigint[]) AS gone (low, high)),
     gone_edits AS (DELETE FROM edits USING gone WHERE seq BETWEEN low AND high),
     gone_errors AS (DELETE FROM errors USING gone WHERE seq BETWEEN low AND high),
     gone_outcomes AS (DELETE FROM outcomes USING gone WHERE seq BETWEEN low AND high),
     gone_tags AS (DELETE FROM tags USING gone WHERE seq BETWEEN low AND high),
     gone_keys AS (DELETE FROM keys USING gone WHERE seq BETWEEN low AND high)
DELETE FROM chosen_ids USING gone WHERE seq BETWEEN low AND high
