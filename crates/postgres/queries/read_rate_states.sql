SELECT queue, used_until_ns FROM rate_states WHERE queue = ANY ($1::integer[])
