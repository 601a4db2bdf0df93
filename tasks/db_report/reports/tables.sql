-- The largest tables of the target. Parameters: most (tables).
SELECT n.nspname AS schema, c.relname AS "table", greatest(c.reltuples, 0)::bigint AS rows_estimated,
       pg_total_relation_size(c.oid) AS bytes
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'm', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
ORDER BY bytes DESC, n.nspname, c.relname
LIMIT %(most)s
