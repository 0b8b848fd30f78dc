-- Keys that new items take over from these: whoever comes second finds nothing here, and then the key taken.
DELETE FROM keys USING (
    SELECT owner.queue, owner.key, owner.seq
    FROM unnest($1::integer[], $2::bytea[], $3::bigint[]) AS released (queue, key, seq)
    JOIN keys owner USING (queue, key, seq)
    ORDER BY owner.queue, owner.key
    FOR UPDATE OF owner
) AS released
WHERE keys.queue = released.queue AND keys.key = released.key AND keys.seq = released.seq
