-- Rights on the level of pressure and its changes. {web}, {engine}, {staff}: see roles.sql. No row is a tenant's. What every
-- tenant may read is the level and since when: readings are sums over all tenants, and of few one could tell whose.
GRANT SELECT, INSERT, UPDATE, DELETE ON level, level_change TO {engine};
GRANT SELECT ON level, level_change TO {staff};
GRANT SELECT (id, level, since, seen_at) ON level TO {web};
GRANT USAGE ON SEQUENCE level_change_id_seq TO {engine};
GRANT USAGE ON SEQUENCE level_change_id_seq TO {staff}; -- lists are paged from its last value

-- One row, written every few seconds.
ALTER TABLE level SET (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
