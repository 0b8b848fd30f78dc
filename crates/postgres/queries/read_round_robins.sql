SELECT queue, fairness_key, deliveries FROM round_robins WHERE queue = ANY ($1::integer[])
