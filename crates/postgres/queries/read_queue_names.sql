SELECT id, name FROM queues WHERE id = ANY ($1::integer[]) AND definition IS NOT NULL
