INSERT INTO events (slot, number, at, told)
SELECT $1, nextval('event_sequence'), $2, told FROM unnest($3::bytea[]) AS told
