-- Rights on how many worker processes pools should have. {web}, {engine}, {staff}: see roles.sql. No row is a tenant's, and
-- counts of processes tell of none; web reads them for the metrics, which have a door of their own.
GRANT SELECT, INSERT, UPDATE, DELETE ON advice, advice_change TO {engine};
GRANT SELECT ON advice, advice_change TO {staff};
GRANT SELECT (pool, workers, desired, wanted, binds, holds, since, seen_at) ON advice TO {web};
GRANT USAGE ON SEQUENCE advice_change_id_seq TO {engine};
GRANT USAGE ON SEQUENCE advice_change_id_seq TO {staff}; -- lists are paged from its last value

-- A row a pool, written every few seconds.
ALTER TABLE advice SET (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
