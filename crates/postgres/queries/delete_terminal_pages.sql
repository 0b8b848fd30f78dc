DELETE FROM terminal_pages
USING unnest($1::smallint[], $2::bigint[]) AS page (partition, first_seq)
WHERE terminal_pages.partition = page.partition AND terminal_pages.first_seq = page.first_seq
