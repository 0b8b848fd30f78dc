SELECT version FROM catalog
