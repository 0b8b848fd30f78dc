WHERE wake_at <= $1
ORDER BY wake_at
LIMIT 1000
