-- The trace: partitioned by day of `at`, so that old days are dropped, not deleted.
-- A DEFAULT partition takes what no day covers; the leader makes days ahead with harness_make_event_days.
-- No primary key: (task_id, seq) is unique by the task row's lock, and every index costs each event.
CREATE TABLE event (
    id bigint GENERATED ALWAYS AS IDENTITY (CACHE 100),
    task_id bigint NOT NULL,
    tenant_id integer NOT NULL,
    seq integer NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    event text NOT NULL,
    from_state text,
    to_state text NOT NULL,
    actor text NOT NULL,
    data jsonb
) PARTITION BY RANGE (at);
CREATE INDEX event_of_task ON event (task_id, seq);
CREATE TABLE event_rest PARTITION OF event DEFAULT;

-- Make one partition a day, from today to `days` ahead; returns how many it made. Idempotent.
CREATE FUNCTION harness_make_event_days(days integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    day date;
    part text;
    made integer := 0;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('harness_make_event_days'));
    FOR day IN SELECT d::date FROM generate_series(
        (now() AT TIME ZONE 'UTC')::date, (now() AT TIME ZONE 'UTC')::date + days, interval '1 day') d
    LOOP
        part := 'event_' || to_char(day, 'YYYYMMDD');
        CONTINUE WHEN to_regclass(part) IS NOT NULL;
        -- Rows that fell into the default partition would refuse the new one: they stay there, and so does the day.
        CONTINUE WHEN EXISTS (SELECT FROM event_rest WHERE at >= day::timestamp AT TIME ZONE 'UTC'
                              AND at < (day + 1)::timestamp AT TIME ZONE 'UTC');
        EXECUTE format('CREATE TABLE %I PARTITION OF event FOR VALUES FROM (%L) TO (%L)', part,
            day::timestamp AT TIME ZONE 'UTC', (day + 1)::timestamp AT TIME ZONE 'UTC');
        made := made + 1;
    END LOOP;
    RETURN made;
END $$;
SELECT harness_make_event_days(14);

-- Room on the page for the updates of a task's life; tables that churn are vacuumed by count, not by share.
ALTER TABLE task SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
ALTER TABLE task_body SET (fillfactor = 85);
ALTER TABLE lease SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
ALTER TABLE lease_member SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
ALTER TABLE worker_session SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
ALTER TABLE flow SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
ALTER TABLE charge SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
ALTER TABLE leader SET (fillfactor = 10);
