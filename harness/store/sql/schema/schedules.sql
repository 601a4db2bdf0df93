-- Row-level security of schedules and terms. {web}, {engine}, {staff}: see roles.sql.
DO $$
DECLARE
    tab text;
    own constant text := 'tenant_id = nullif(current_setting(''harness.tenant'', true), '''')::integer';
BEGIN
    FOREACH tab IN ARRAY ARRAY['schedule', 'task_term'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', tab);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', tab);
        EXECUTE format('CREATE POLICY everything ON %I TO {engine}, {staff}, CURRENT_USER USING (true) WITH CHECK (true)', tab);
        EXECUTE format('CREATE POLICY own_tenant ON %I TO {web} USING (%s) WITH CHECK (%s)', tab, own, own);
    END LOOP;
END $$;

GRANT SELECT, INSERT, UPDATE, DELETE ON schedule, task_term TO {engine}, {staff};
GRANT SELECT, INSERT, UPDATE, DELETE ON schedule TO {web};
GRANT SELECT, INSERT ON task_term TO {web};
GRANT USAGE ON SEQUENCE schedule_id_seq TO {engine}, {staff}, {web};
