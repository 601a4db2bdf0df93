-- Pauses carry the tenant whose work they stop (null: everyone's). A tenant sees those and the common ones, and sets its
-- own: of itself and of its runs. {web}, {staff}: see roles.sql and staff.sql.
UPDATE pause SET tenant_id = key::integer WHERE scope = 'tenant' AND key ~ '^\d+$';
UPDATE pause SET tenant_id = run.tenant_id FROM run
WHERE pause.scope = 'run' AND pause.key ~ '^\d+$' AND run.id::text = pause.key;

DROP POLICY common_or_own ON pause;
CREATE POLICY common_or_own ON pause FOR SELECT TO {web}
    USING (tenant_id IS NULL OR tenant_id = nullif(current_setting('harness.tenant', true), '')::integer);
CREATE POLICY sets_own ON pause FOR INSERT TO {web} WITH CHECK (
    tenant_id = nullif(current_setting('harness.tenant', true), '')::integer AND source = 'tenant'
    AND CASE scope WHEN 'tenant' THEN key = tenant_id::text
                   WHEN 'run' THEN EXISTS (SELECT FROM run WHERE run.id = key::bigint AND run.tenant_id = pause.tenant_id)
                   ELSE false END);
CREATE POLICY ends_own ON pause FOR UPDATE TO {web}
    USING (tenant_id = nullif(current_setting('harness.tenant', true), '')::integer AND source = 'tenant')
    WITH CHECK (tenant_id = nullif(current_setting('harness.tenant', true), '')::integer AND source = 'tenant'
    AND CASE scope WHEN 'tenant' THEN key = tenant_id::text
                   WHEN 'run' THEN EXISTS (SELECT FROM run WHERE run.id = key::bigint AND run.tenant_id = pause.tenant_id)
                   ELSE false END);
GRANT SELECT, INSERT, UPDATE ON pause TO {web};

DROP POLICY staff_held ON pause;
CREATE POLICY staff_held ON pause AS RESTRICTIVE TO {staff} USING (
    nullif(current_setting('harness.tenant', true), '') IS NULL
    OR tenant_id = nullif(current_setting('harness.tenant', true), '')::integer);
