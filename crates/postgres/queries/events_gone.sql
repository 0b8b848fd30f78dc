-- The last number that is not kept any more.
SELECT events_gone FROM catalog
