SELECT version, body_slot FROM catalog
