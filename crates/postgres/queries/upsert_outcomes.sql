INSERT INTO outcomes (seq, outcome) SELECT * FROM unnest($1::bigint[], $2::text[])
ON CONFLICT (seq) DO UPDATE SET outcome = excluded.outcome
