-- Keys of items that have ended. Sorted, as in `insert_keys.sql`.
UPDATE keys SET freed = true FROM (
    SELECT owner.seq FROM keys owner WHERE owner.seq = ANY ($1::bigint[]) AND NOT owner.freed
    ORDER BY owner.queue, owner.key
    FOR UPDATE OF owner
) AS ended
WHERE keys.seq = ended.seq
