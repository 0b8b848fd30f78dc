INSERT INTO events (partition, number, at, packed)
SELECT $1, nextval('event_sequence'), $2, packed FROM unnest($3::bytea[]) AS packed
