SELECT nextval('queue_sequence')
