-- Row-level security and rights of findings, what the auditor may see of the server, and the end of the trace's old days.
-- {web}, {engine}, {staff}: see roles.sql. Findings are the operators' business: web reads only its tenant's.
DO $$
DECLARE
    own constant text := 'tenant_id = nullif(current_setting(''harness.tenant'', true), '''')::integer';
    held constant text := 'nullif(current_setting(''harness.tenant'', true), '''') IS NULL OR '
        'tenant_id = nullif(current_setting(''harness.tenant'', true), '''')::integer';
BEGIN
    ALTER TABLE audit_finding ENABLE ROW LEVEL SECURITY;
    ALTER TABLE audit_finding FORCE ROW LEVEL SECURITY;
    CREATE POLICY everything ON audit_finding TO {engine}, {staff}, CURRENT_USER USING (true) WITH CHECK (true);
    EXECUTE format('CREATE POLICY own_tenant ON audit_finding FOR SELECT TO {web} USING (%s)', own);
    EXECUTE format('CREATE POLICY staff_held ON audit_finding AS RESTRICTIVE TO {staff} USING (%s)', held);
END $$;
GRANT SELECT, INSERT, UPDATE, DELETE ON audit_finding TO {engine};
GRANT SELECT ON audit_finding TO {staff}, {web};
GRANT USAGE ON SEQUENCE audit_finding_id_seq TO {engine}, {staff}; -- staff: lists are paged from its last value

-- Transactions of the other sessions of this database, and prepared ones, with their age; no statements. Runs as the
-- owner, under whose login all of Harness's sessions are; those of other logins are hidden but for the xmin they hold.
CREATE FUNCTION harness_transactions() RETURNS TABLE (
    pid integer, role text, application text, state text, age_s double precision, xmin text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT a.pid, a.usename::text, a.application_name, a.state,
           extract(epoch FROM clock_timestamp() - a.xact_start)::double precision,
           coalesce(a.backend_xmin, a.backend_xid)::text
    FROM pg_stat_activity a
    WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.usesysid IS NOT NULL
      AND (a.xact_start IS NOT NULL OR a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL)
    UNION ALL
    SELECT NULL, p.owner::text, p.gid, 'prepared',
           extract(epoch FROM clock_timestamp() - p.prepared)::double precision, p.transaction::text
    FROM pg_prepared_xacts p WHERE p.database = current_database()
$$;
REVOKE EXECUTE ON FUNCTION harness_transactions() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION harness_transactions() TO {engine};

-- Drop the oldest day of the trace that ended before `before`; events of tasks that are still there move to the default
-- partition first, so that a task that waits for months keeps its story. A day that holds more than `keep_most` of them
-- is left for later: they are copied back while every writer of the trace waits.
-- Returns the partition's name; null: no more. Only the owner of the tables can call it.
-- Locks: event and the day, exclusively, from the detach to the commit; the caller's lock_timeout bounds the wait, during
-- which writers queue behind it. The copy is made before.
DROP FUNCTION harness_drop_event_day(timestamptz);
CREATE FUNCTION harness_drop_event_day(before timestamptz, keep_most integer DEFAULT 10000) RETURNS text
LANGUAGE plpgsql SET search_path = public, pg_temp AS $$
DECLARE
    part text;
    kept integer;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('harness_make_event_days'));
    FOR part IN
        SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'event'::regclass AND c.relname ~ '^event_[0-9]+$'
          AND (to_date(substr(c.relname, 7), 'YYYYMMDD') + 1)::timestamp AT TIME ZONE 'UTC' <= before
        ORDER BY c.relname
    LOOP
        EXECUTE format('CREATE TEMP TABLE harness_kept_events ON COMMIT DROP AS
                        SELECT e.* FROM %I e WHERE EXISTS (SELECT FROM task t WHERE t.id = e.task_id) LIMIT %s',
                       part, keep_most + 1);
        GET DIAGNOSTICS kept = ROW_COUNT;
        IF kept > keep_most THEN
            DROP TABLE harness_kept_events;
            CONTINUE;
        END IF;
        EXECUTE format('ALTER TABLE event DETACH PARTITION %I', part);
        INSERT INTO event OVERRIDING SYSTEM VALUE SELECT * FROM harness_kept_events;
        EXECUTE format('DROP TABLE %I', part);
        DROP TABLE harness_kept_events;
        RETURN part;
    END LOOP;
    RETURN NULL;
END $$;
REVOKE EXECUTE ON FUNCTION harness_drop_event_day(timestamptz, integer) FROM PUBLIC;
