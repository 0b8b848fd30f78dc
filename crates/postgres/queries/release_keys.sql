-- Replace keys that new items take over from older ones. If another transaction took a key over first, its row is not found
-- here, and the insert of the key then fails.
DELETE FROM keys USING (
    SELECT owner.queue, owner.key, owner.seq
    FROM unnest($1::integer[], $2::bytea[], $3::bigint[]) AS released (queue, key, seq)
    JOIN keys owner USING (queue, key, seq)
    ORDER BY owner.queue, owner.key
    FOR UPDATE OF owner
) AS released
WHERE keys.queue = released.queue AND keys.key = released.key AND keys.seq = released.seq
