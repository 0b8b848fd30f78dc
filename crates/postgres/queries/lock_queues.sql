SELECT pg_advisory_xact_lock($1, queue) FROM unnest($2::integer[]) AS queue
