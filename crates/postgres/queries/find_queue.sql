SELECT id FROM queues WHERE name = $1
