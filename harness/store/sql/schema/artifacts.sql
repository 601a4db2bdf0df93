-- Row-level security and rights of artifacts; an audit that nobody deletes; the end of the trace's old days.
-- {web}, {engine} and {staff} carry the database's name, as in roles.sql.
ALTER TABLE artifact ENABLE ROW LEVEL SECURITY;
ALTER TABLE artifact FORCE ROW LEVEL SECURITY;
CREATE POLICY everything ON artifact TO {engine}, {staff}, CURRENT_USER USING (true) WITH CHECK (true);
CREATE POLICY own_tenant ON artifact TO {web}
    USING (tenant_id = nullif(current_setting('harness.tenant', true), '')::integer)
    WITH CHECK (tenant_id = nullif(current_setting('harness.tenant', true), '')::integer);
GRANT SELECT, INSERT, UPDATE, DELETE ON artifact TO {engine}, {staff}, {web};
GRANT USAGE ON SEQUENCE artifact_id_seq TO {engine}, {staff}, {web};

GRANT SELECT, INSERT, UPDATE ON audit_entry TO {engine}, {staff};
GRANT USAGE ON SEQUENCE audit_entry_id_seq TO {engine}, {staff};
-- Whoever may delete, by whatever grant: not here.
CREATE FUNCTION harness_audit_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'an audit entry stays' USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER audit_stays BEFORE DELETE ON audit_entry FOR EACH ROW EXECUTE FUNCTION harness_audit_stays();

-- Drop the oldest day of the trace that ended before `before`; events of tasks that are still there move to the default
-- partition first, so that a task that waits for months keeps its story. Returns the partition's name; null: no more.
-- Only the owner of the tables can: a command calls it. The copy is made before the parent is locked: submitting and settling wait only for the moment of the detach.
CREATE FUNCTION harness_drop_event_day(before timestamptz) RETURNS text
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    part text;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('harness_make_event_days'));
    SELECT c.relname INTO part FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'event'::regclass AND c.relname ~ '^event_[0-9]+$'
      AND (to_date(substr(c.relname, 7), 'YYYYMMDD') + 1)::timestamp AT TIME ZONE 'UTC' <= before
    ORDER BY c.relname LIMIT 1;
    IF part IS NULL THEN
        RETURN NULL;
    END IF;
    EXECUTE format('CREATE TEMP TABLE harness_kept_events ON COMMIT DROP AS
                    SELECT e.* FROM %I e WHERE EXISTS (SELECT FROM task t WHERE t.id = e.task_id)', part);
    EXECUTE format('ALTER TABLE event DETACH PARTITION %I', part);
    INSERT INTO event OVERRIDING SYSTEM VALUE SELECT * FROM harness_kept_events;
    EXECUTE format('DROP TABLE %I', part);
    DROP TABLE harness_kept_events;
    RETURN part;
END $$;
REVOKE EXECUTE ON FUNCTION harness_drop_event_day(timestamptz) FROM PUBLIC;
