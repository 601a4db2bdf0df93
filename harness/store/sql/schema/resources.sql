-- Rights on what is set, seen and changed of resources, and how the tables are kept. {web}, {engine}, {staff}: see roles.sql.
-- No row is a tenant's: how a resource stands is counts alone, so every tenant reads that; who set what is the operators'.
GRANT SELECT, INSERT, UPDATE, DELETE ON override, resource_state, limit_change TO {engine};
GRANT SELECT, INSERT, UPDATE ON override TO {staff};
GRANT SELECT, INSERT ON limit_change TO {staff};
GRANT SELECT ON resource_state TO {staff}, {web};
GRANT USAGE ON SEQUENCE override_id_seq, limit_change_id_seq TO {engine}, {staff};

-- A row a resource, written every few seconds: room on its page, and a vacuum before it has grown.
ALTER TABLE resource_state SET (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
