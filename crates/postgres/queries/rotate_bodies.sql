SELECT rotate_bodies($1)
