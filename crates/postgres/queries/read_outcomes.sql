SELECT seq, outcome FROM outcomes WHERE seq = ANY ($1::bigint[])
