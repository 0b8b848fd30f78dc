-- Only the pieces asked for: a heavy field that nobody wants is not even read.
SELECT piece.number, substring(bodies.blob FROM piece.at + 1 FOR piece.length)
FROM unnest($1::smallint[], $2::bigint[], $3::integer[], $4::integer[])
    WITH ORDINALITY AS piece (slot, chunk, at, length, number)
JOIN bodies ON bodies.slot = piece.slot AND bodies.first_seq = piece.chunk
