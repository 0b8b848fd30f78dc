-- At most 500 jobs in order of id, with at most $3 bytes of payload, but at least one job.
SELECT id, team_id, function_id, queue_name, state::text, priority,
    (extract(epoch FROM scheduled) * 1000)::bigint, vm_state, parameters, blob, metadata
FROM (
    SELECT page.*, row_number() OVER (ORDER BY id) AS nth, sum(
        coalesce(octet_length(vm_state), 0) + coalesce(octet_length(parameters), 0)
        + coalesce(octet_length(blob), 0) + coalesce(octet_length(metadata), 0)
    ) OVER (ORDER BY id) AS bytes
    FROM (
        SELECT * FROM cyclotron_jobs
        WHERE ($1::uuid IS NULL OR id > $1) AND state::text = ANY($2)
        ORDER BY id LIMIT 500
    ) page
) sized
WHERE nth = 1 OR bytes <= $3
ORDER BY id
