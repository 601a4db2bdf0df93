-- Hot tables with more dead rows than vacuum should leave. Returns: rule, subject, null, null, facts.
-- Needs: nothing (statistics). Locks: nothing. Parameters: tables, least, ratio (of the live rows).
SELECT 'dead_rows', 'table ' || relname, NULL::bigint, NULL::integer,
       jsonb_build_object('dead', n_dead_tup, 'live', n_live_tup, 'last_autovacuum', last_autovacuum)
FROM pg_stat_user_tables
WHERE relname = ANY(%(tables)s) AND n_dead_tup > greatest(%(least)s, %(ratio)s * n_live_tup)
ORDER BY relname
