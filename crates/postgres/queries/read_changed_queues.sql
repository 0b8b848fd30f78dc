SELECT id, definition, version FROM queues WHERE version > $1
