-- The last number that is not kept any more, the last one that is visible, and the oldest transaction that is under way.
SELECT
    events_gone,
    coalesce((SELECT max(number) FROM events), events_gone),
    pg_snapshot_xmin(pg_current_snapshot())::text::bigint
FROM catalog
