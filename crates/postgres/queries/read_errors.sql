SELECT seq, error FROM errors WHERE seq = ANY ($1::bigint[]) ORDER BY seq, revision
