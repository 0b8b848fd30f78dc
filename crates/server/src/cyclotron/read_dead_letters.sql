SELECT job_id, original_queue_name, reason FROM cyclotron_dead_letter_metadata WHERE job_id = ANY($1)
