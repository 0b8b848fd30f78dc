WITH gone_bodies AS (DELETE FROM bodies WHERE seq = ANY ($1::bigint[])),
     gone_errors AS (DELETE FROM errors WHERE seq = ANY ($1::bigint[])),
     gone_outcomes AS (DELETE FROM outcomes WHERE seq = ANY ($1::bigint[])),
     gone_tags AS (DELETE FROM tags WHERE seq = ANY ($1::bigint[])),
     gone_keys AS (DELETE FROM keys WHERE seq = ANY ($1::bigint[])),
     gone_ids AS (
         DELETE FROM chosen_ids
         WHERE id = ANY (ARRAY(SELECT items.id FROM items WHERE items.seq = ANY ($1::bigint[])))
           AND seq = ANY ($1::bigint[])
     )
DELETE FROM items WHERE seq = ANY ($1::bigint[])
