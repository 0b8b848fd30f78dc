-- Blocks, in order of submission: whoever locks several pages this way cannot wait in a circle.
ORDER BY first_seq
FOR UPDATE
