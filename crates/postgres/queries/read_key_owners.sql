SELECT owner.queue, owner.key, owner.seq, owner.id, owner.content_digest
FROM unnest($1::integer[], $2::bytea[]) AS asked (queue, key)
JOIN keys owner ON owner.queue = asked.queue AND owner.key = asked.key AND NOT owner.freed
