SELECT version, payload_partition, event_partition FROM catalog
