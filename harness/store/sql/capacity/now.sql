-- How many connections the server of Harness's own database has and takes, and how many slots each pool has at work.
-- Returns one row: connections to the server, max_connections, those it keeps for superusers, leases by pool (jsonb).
-- Needs: nothing on lease (few rows). Locks: none.
SELECT (SELECT count(*)::integer FROM pg_stat_activity WHERE usename IS NOT NULL),
       current_setting('max_connections')::integer,
       current_setting('superuser_reserved_connections')::integer
       + coalesce(current_setting('reserved_connections', true), '0')::integer,
       (SELECT coalesce(jsonb_object_agg(pool, n), '{}') FROM (SELECT pool, count(*) AS n FROM lease GROUP BY pool) l)
