SELECT reclaim_disk($1)
