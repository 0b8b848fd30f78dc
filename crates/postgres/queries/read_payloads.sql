-- Reads only the pieces asked for: PostgreSQL does not even read a large field that no caller wants. A row that is not in
-- its own partition was moved to partition 15.
SELECT piece.number, coalesce(
    (
        SELECT substring(bytes FROM piece.start + 1 FOR piece.length) FROM payloads
        WHERE partition = piece.partition AND first_seq = piece.chunk
    ),
    (
        SELECT substring(bytes FROM piece.start + 1 FOR piece.length) FROM payloads
        WHERE partition = 15 AND first_seq = piece.chunk
    )
)
FROM unnest($1::smallint[], $2::bigint[], $3::integer[], $4::integer[])
    WITH ORDINALITY AS piece (partition, chunk, start, length, number)
