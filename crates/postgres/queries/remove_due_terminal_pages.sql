-- Removes pages as a whole, without reading their items. Skips pages that another transaction has locked.
WITH due AS (
    SELECT partition, first_seq FROM terminal_pages
    WHERE remove_at <= (SELECT coalesce($1, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint))
    ORDER BY remove_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED
)
DELETE FROM terminal_pages AS page USING due
WHERE page.partition = due.partition AND page.first_seq = due.first_seq
RETURNING page.queue, page.completed_count, page.failed_count, page.has_side_rows, page.first_seq, page.last_seq
