-- Roles and row-level security. {web}, {engine} and {staff} carry the database's name (roles belong to the cluster).
-- web sees the tenant of the setting harness.tenant; none set: no rows. engine and staff see all, by a policy.
-- FORCEd, so that the tables' owner is held to the policies too.
DO $$
DECLARE
    name text;
    tab text;
    own constant text := 'tenant_id = nullif(current_setting(''harness.tenant'', true), '''')::integer';
BEGIN
    FOREACH name IN ARRAY ARRAY['{web}', '{engine}', '{staff}'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', name);
        END IF;
        IF NOT pg_has_role(current_user, name, 'MEMBER') OR
           (SELECT rolsuper IS FALSE FROM pg_roles WHERE rolname = current_user) THEN
            EXECUTE format('GRANT %I TO %I', name, current_user);
        END IF;
        EXECUTE format('GRANT USAGE ON SCHEMA public TO %I', name);
    END LOOP;

    FOREACH tab IN ARRAY ARRAY['tenant', 'quota', 'api_key', 'idempotency', 'run', 'task', 'task_body', 'attempt',
                               'lease', 'lease_member', 'flow', 'charge', 'event', 'pause'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', tab);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', tab);
        EXECUTE format('CREATE POLICY everything ON %I TO {engine}, {staff}, CURRENT_USER USING (true) WITH CHECK (true)', tab);
        IF tab NOT IN ('tenant', 'api_key', 'pause') THEN
            EXECUTE format('CREATE POLICY own_tenant ON %I TO {web} USING (%s) WITH CHECK (%s)', tab, own, own);
        END IF;
    END LOOP;
END $$;

CREATE POLICY own_tenant ON tenant TO {web}
    USING (id = nullif(current_setting('harness.tenant', true), '')::integer);
-- The one thing web may read before it knows the tenant: the key that the caller has shown the prefix of.
CREATE POLICY shown_key ON api_key FOR SELECT TO {web}
    USING (prefix = nullif(current_setting('harness.key_prefix', true), ''));
CREATE POLICY common_or_own ON pause FOR SELECT TO {web}
    USING (scope NOT IN ('tenant', 'run') OR (scope = 'tenant' AND key = current_setting('harness.tenant', true)));

GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {engine}, {staff};
GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {engine}, {staff}, {web};
GRANT SELECT ON tenant, quota, api_key, run, task, task_body, attempt, lease, lease_member, flow, event, pause,
    idempotency, leader, estimate, worker_session TO {web};
GRANT INSERT ON run, task, task_body, event, flow, idempotency TO {web};
GRANT UPDATE ON task, run, idempotency, lease TO {web};
GRANT DELETE ON lease, lease_member, idempotency TO {web};
