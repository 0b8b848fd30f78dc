SELECT queue, key, given FROM turns WHERE queue = ANY ($1::integer[])
