-- What the admin's role {staff} may do: read all, set what people set, act by the verbs; never rewrite history.
-- A request on behalf of one tenant says so in harness.tenant; then the role sees and writes that tenant's rows alone,
-- whatever the admin's own filters forget. Restrictive: on top of the policy that lets the role see everything.
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {staff};
GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {staff};
REVOKE INSERT, DELETE ON task, task_body, attempt, run FROM {staff};
REVOKE UPDATE, DELETE ON event FROM {staff};

DO $$
DECLARE
    tab regclass;
    own constant text := 'nullif(current_setting(''harness.tenant'', true), '''') IS NULL OR '
        '%s = nullif(current_setting(''harness.tenant'', true), '''')::integer';
BEGIN
    -- The trace's partitions have no policies: they are reached through their parent only.
    FOR tab IN SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'event'::regclass LOOP
        EXECUTE format('REVOKE ALL ON %s FROM {staff}', tab);
    END LOOP;
    FOR tab IN
        SELECT c.oid::regclass FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND c.relrowsecurity
          AND a.attname = 'tenant_id' AND NOT a.attisdropped
    LOOP
        EXECUTE format('CREATE POLICY staff_held ON %s AS RESTRICTIVE TO {staff} USING (%s) WITH CHECK (%s)',
                       tab, format(own, 'tenant_id'), format(own, 'tenant_id'));
    END LOOP;
    EXECUTE format('CREATE POLICY staff_held ON tenant AS RESTRICTIVE TO {staff} USING (%s)', format(own, 'id'));
END $$;

CREATE POLICY staff_held ON pause AS RESTRICTIVE TO {staff} USING (
    nullif(current_setting('harness.tenant', true), '') IS NULL
    OR (scope = 'tenant' AND key = current_setting('harness.tenant', true)));
