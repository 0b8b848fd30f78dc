SELECT rotate_payloads($1)
