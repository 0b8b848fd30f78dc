SELECT batch FROM sessions WHERE session = $1 ORDER BY batch DESC LIMIT 1
