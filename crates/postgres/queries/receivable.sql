-- Never waits. Begins after a place, so as not to walk over what was given out long ago. What has expired is not given.
-- `$6` is NULL where the database's clock counts.
WHERE queue = $1 AND rank IS NOT NULL AND (rank, place, seq) > ($2::bigint, $3::bigint, $4::bigint)
  AND (expires_at IS NULL OR expires_at > (
      SELECT coalesce($6, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
  ))
ORDER BY rank, place, seq
LIMIT $5
FOR UPDATE SKIP LOCKED
