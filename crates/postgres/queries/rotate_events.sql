SELECT rotate_events($1, $2, $3, $4)
