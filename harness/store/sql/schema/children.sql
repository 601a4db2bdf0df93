-- Row-level security of gathering, dependency and notice. {web}, {engine}, {staff}: see roles.sql. A tenant submits tasks
-- that depend on each other, and a tenant's or staff's cancel tells those that wait (trigger task_told_to_others).
DO $$
DECLARE
    tab text;
    own constant text := 'tenant_id = nullif(current_setting(''harness.tenant'', true), '''')::integer';
    held constant text := 'nullif(current_setting(''harness.tenant'', true), '''') IS NULL OR '
        'tenant_id = nullif(current_setting(''harness.tenant'', true), '''')::integer';
BEGIN
    FOREACH tab IN ARRAY ARRAY['gathering', 'dependency', 'notice'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', tab);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', tab);
        EXECUTE format('CREATE POLICY everything ON %I TO {engine}, {staff}, CURRENT_USER USING (true) WITH CHECK (true)', tab);
        EXECUTE format('CREATE POLICY own_tenant ON %I TO {web} USING (%s) WITH CHECK (%s)', tab, own, own);
        EXECUTE format('CREATE POLICY staff_held ON %I AS RESTRICTIVE TO {staff} USING (%s) WITH CHECK (%s)', tab, held, held);
    END LOOP;
END $$;
GRANT SELECT, INSERT, UPDATE, DELETE ON gathering, dependency, notice TO {engine};
GRANT SELECT ON gathering, dependency TO {staff}, {web};
GRANT INSERT ON dependency, notice TO {staff}, {web};
GRANT USAGE ON SEQUENCE notice_id_seq TO {engine}, {staff}, {web};
-- A queue: rows come and go within a tick.
ALTER TABLE notice SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
