SELECT reclaim($1)
