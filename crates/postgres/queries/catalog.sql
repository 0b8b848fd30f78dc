SELECT version, body_slot, event_slot FROM catalog
