WHERE seq > $1 AND seq <= $2
  AND ($3::integer IS NULL OR queue = $3)
  AND ($4::smallint[] IS NULL OR state = ANY ($4))
  AND ($5::bigint IS NULL OR ready_at <= $5)
  AND ($6::bigint IS NULL OR ready_at > $6)
  AND ($7::bigint IS NULL OR created_at >= $7)
  AND ($8::bigint IS NULL OR created_at < $8)
  AND ($9::bytea IS NULL OR item_group = $9)
  AND ($10::bytea IS NULL OR seq IN (SELECT keys.seq FROM keys WHERE keys.key = $10))
  AND NOT EXISTS (
      SELECT 1 FROM unnest($11::bytea[], $12::bytea[]) AS wanted (name, value)
      WHERE NOT EXISTS (
          SELECT 1 FROM tags
          WHERE tags.seq = items.seq AND tags.name = wanted.name AND tags.value = wanted.value
      )
  )
ORDER BY seq
LIMIT $13
