SELECT batch FROM sessions WHERE session = $1
