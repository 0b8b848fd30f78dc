-- `$2` is NULL where the database's clock counts.
SELECT EXISTS (
    SELECT 1 FROM items
    WHERE queue = $1 AND rank IS NOT NULL
      AND (expires_at IS NULL OR expires_at > (
          SELECT coalesce($2, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)
      ))
)
