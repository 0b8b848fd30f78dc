SELECT owner.queue, owner.key, owner.seq, owner.id, owner.content
FROM unnest($1::integer[], $2::bytea[]) AS wanted (queue, key)
JOIN keys owner ON owner.queue = wanted.queue AND owner.key = wanted.key
