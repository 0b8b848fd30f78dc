DELETE FROM finished
USING unnest($1::smallint[], $2::bigint[]) AS gone (slot, first_seq)
WHERE finished.slot = gone.slot AND finished.first_seq = gone.first_seq
