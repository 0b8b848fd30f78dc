-- Deletes fewer rows than asked for if another server has the same entries.
DELETE FROM inbox WHERE position IN (
    SELECT position FROM inbox WHERE position = ANY ($1::bigint[]) FOR UPDATE SKIP LOCKED
)
