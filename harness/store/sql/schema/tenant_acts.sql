-- A tenant's own pauses and resumes stay in the audit: role {web} adds them under its tenant's number (data.tenant), and
-- reads nothing. There is no tenant_id: an entry outlives its tenant. {web}, {engine}, {staff}: see roles.sql.
ALTER TABLE audit_entry ENABLE ROW LEVEL SECURITY;
ALTER TABLE audit_entry FORCE ROW LEVEL SECURITY;
CREATE POLICY everything ON audit_entry TO {engine}, {staff}, CURRENT_USER USING (true) WITH CHECK (true);
CREATE POLICY own_acts ON audit_entry FOR INSERT TO {web} WITH CHECK (
    verb IN ('pause', 'resume')
    AND (data ->> 'tenant')::integer = nullif(current_setting('harness.tenant', true), '')::integer);
GRANT INSERT (actor, verb, subject, reason, data, ended_at) ON audit_entry TO {web};
GRANT USAGE ON SEQUENCE audit_entry_id_seq TO {web};
