-- `begins`: its keys begin to take turns, and what is ready is in pages of no key.
INSERT INTO turns (queue, key, given, rank, place, foremost)
SELECT queue, key, given, CASE WHEN begins THEN -9223372036854775808 END, CASE WHEN begins THEN 0 END, CASE WHEN begins THEN 0 END
FROM unnest($1::integer[], $2::bigint[], $3::integer[], $4::boolean[]) AS turn (queue, key, given, begins)
ORDER BY queue
ON CONFLICT (queue) DO UPDATE SET
    key = excluded.key,
    given = excluded.given,
    rank = coalesce(excluded.rank, turns.rank),
    place = coalesce(excluded.place, turns.place),
    foremost = coalesce(excluded.foremost, turns.foremost)
