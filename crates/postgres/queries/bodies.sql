-- Only the pieces asked for: a heavy field that nobody wants is not even read. What is not where it was put has been kept
-- in the last partition.
SELECT piece.number, coalesce(
    (
        SELECT substring(blob FROM piece.at + 1 FOR piece.length) FROM bodies
        WHERE slot = piece.slot AND first_seq = piece.chunk
    ),
    (
        SELECT substring(blob FROM piece.at + 1 FOR piece.length) FROM bodies
        WHERE slot = 15 AND first_seq = piece.chunk
    )
)
FROM unnest($1::smallint[], $2::bigint[], $3::integer[], $4::integer[])
    WITH ORDINALITY AS piece (slot, chunk, at, length, number)
