SELECT seq FROM keys WHERE key = $1
