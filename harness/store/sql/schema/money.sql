-- Row-level security and rights of what 0005 makes; {web}, {engine}, {staff} as in schema/roles.
DO $$
DECLARE
    tab text;
    own constant text := 'tenant_id = nullif(current_setting(''harness.tenant'', true), '''')::integer';
BEGIN
    FOREACH tab IN ARRAY ARRAY['budget', 'usage_day'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', tab);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', tab);
        EXECUTE format('CREATE POLICY everything ON %I TO {engine}, {staff}, CURRENT_USER USING (true) WITH CHECK (true)', tab);
        EXECUTE format('CREATE POLICY own_tenant ON %I FOR SELECT TO {web} USING (%s)', tab, own);
    END LOOP;
END $$;

GRANT SELECT, INSERT, UPDATE, DELETE ON budget, usage_day, usage_mark TO {engine}, {staff};
GRANT USAGE ON SEQUENCE usage_day_id_seq TO {engine}, {staff};
GRANT SELECT ON budget, usage_day, usage_mark TO {web};
