INSERT INTO counters (shard, queue, pending, scheduled, processing, paused, completed, failed)
SELECT $1::integer, * FROM unnest(
    $2::integer[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[]
) AS change (queue, pending, scheduled, processing, paused, completed, failed)
ORDER BY change.queue
