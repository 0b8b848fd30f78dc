-- Gives a restored dump a history of its own. The table is a copy if it is not where it was: another cluster, database or table.
UPDATE catalog
SET history = CASE WHEN catalog.home IS NULL THEN history ELSE hashtext(gen_random_uuid()::text) END, home = here.home
FROM (
    SELECT concat_ws('/', system_identifier, current_database(), 'catalog'::regclass::oid) AS home FROM pg_control_system()
) AS here
WHERE catalog.home IS DISTINCT FROM here.home
