-- Row-level security and rights of the reasons, and how the two tables are kept. {web}, {engine}, {staff}: see roles.sql.
-- A tenant reads the reasons of its own flows. How a pool stands is counts alone, so every tenant reads that.
DO $$
DECLARE
    own constant text := 'tenant_id = nullif(current_setting(''harness.tenant'', true), '''')::integer';
    held constant text := 'nullif(current_setting(''harness.tenant'', true), '''') IS NULL OR '
        'tenant_id = nullif(current_setting(''harness.tenant'', true), '''')::integer';
BEGIN
    ALTER TABLE wait_reason ENABLE ROW LEVEL SECURITY;
    ALTER TABLE wait_reason FORCE ROW LEVEL SECURITY;
    CREATE POLICY everything ON wait_reason TO {engine}, {staff}, CURRENT_USER USING (true) WITH CHECK (true);
    EXECUTE format('CREATE POLICY own_tenant ON wait_reason FOR SELECT TO {web} USING (%s)', own);
    EXECUTE format('CREATE POLICY staff_held ON wait_reason AS RESTRICTIVE TO {staff} USING (%s)', held);
END $$;
GRANT SELECT, INSERT, UPDATE, DELETE ON wait_reason, pool_now TO {engine};
GRANT SELECT ON wait_reason, pool_now TO {staff}, {web};
GRANT USAGE ON SEQUENCE wait_reason_id_seq TO {engine};

ALTER TABLE wait_reason SET (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000);
ALTER TABLE pool_now SET (fillfactor = 20);
