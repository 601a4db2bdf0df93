-- Row-level security of steps. {web}, {engine}, {staff}: see roles.sql. Only the engine writes a step; who sends a task
-- again with another input (the tenant, or staff for it) drops those that the old input had.
DO $$
DECLARE
    own constant text := 'tenant_id = nullif(current_setting(''harness.tenant'', true), '''')::integer';
    held constant text := 'nullif(current_setting(''harness.tenant'', true), '''') IS NULL OR '
        'tenant_id = nullif(current_setting(''harness.tenant'', true), '''')::integer';
BEGIN
    ALTER TABLE step ENABLE ROW LEVEL SECURITY;
    ALTER TABLE step FORCE ROW LEVEL SECURITY;
    CREATE POLICY everything ON step TO {engine}, {staff}, CURRENT_USER USING (true) WITH CHECK (true);
    EXECUTE format('CREATE POLICY own_tenant ON step TO {web} USING (%s) WITH CHECK (%s)', own, own);
    EXECUTE format('CREATE POLICY staff_held ON step AS RESTRICTIVE TO {staff} USING (%s) WITH CHECK (%s)', held, held);
END $$;
GRANT SELECT, INSERT, UPDATE, DELETE ON step TO {engine};
GRANT SELECT, DELETE ON step TO {staff}, {web};
-- Each is written twice, and goes with its task.
ALTER TABLE step SET (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.05);
