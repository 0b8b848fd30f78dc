-- Who finds fewer than it asked for was not the first.
DELETE FROM inbox WHERE position IN (
    SELECT position FROM inbox WHERE position = ANY ($1::bigint[]) FOR UPDATE SKIP LOCKED
)
