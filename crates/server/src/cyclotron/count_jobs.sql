SELECT state::text, queue_name = '_cyclotron_dead_letter', count(*) FROM cyclotron_jobs GROUP BY 1, 2
