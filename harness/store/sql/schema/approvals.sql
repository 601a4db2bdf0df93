-- Row-level security and rights of questions and of where a tenant hears of them. {web}, {engine}, {staff}: see roles.sql.
-- The engine asks; people answer, a tenant its own; who sends a task again drops what isn't answered for good.
DO $$
DECLARE
    tab text;
    own constant text := 'tenant_id = nullif(current_setting(''harness.tenant'', true), '''')::integer';
    held constant text := 'nullif(current_setting(''harness.tenant'', true), '''') IS NULL OR '
        'tenant_id = nullif(current_setting(''harness.tenant'', true), '''')::integer';
BEGIN
    FOREACH tab IN ARRAY ARRAY['approval', 'approval_hook'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', tab);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', tab);
        EXECUTE format('CREATE POLICY everything ON %I TO {engine}, {staff}, CURRENT_USER USING (true) WITH CHECK (true)', tab);
        EXECUTE format('CREATE POLICY own_tenant ON %I TO {web} USING (%s) WITH CHECK (%s)', tab, own, own);
        EXECUTE format('CREATE POLICY staff_held ON %I AS RESTRICTIVE TO {staff} USING (%s) WITH CHECK (%s)', tab, held, held);
    END LOOP;
END $$;
GRANT SELECT, INSERT, UPDATE, DELETE ON approval, approval_hook TO {engine};
GRANT SELECT, UPDATE, DELETE ON approval TO {staff}, {web};
GRANT SELECT ON approval_hook TO {web};
GRANT SELECT, INSERT, UPDATE, DELETE ON approval_hook TO {staff};
GRANT USAGE ON SEQUENCE approval_id_seq TO {engine}, {staff}; -- staff: lists are paged from its last value
-- Each is written twice or more, and goes with its task.
ALTER TABLE approval SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
