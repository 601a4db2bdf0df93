-- Keep a pass: all forecasts as it made them (those that it didn't make go), first forecasts to be held against what comes,
-- and the pass itself. Old ones that say nothing any more go.
-- Returns: how many forecasts were kept. Needs: forecast_pkey, run_forecast_pkey, forecast_borne_pkey, forecast_borne_at.
-- Locks: the rows; who writes holds the lock of the pass. Parameters: tasks, runs, first (jsonb arrays of objects), at_s,
-- took_s, waiting, looked_at, most, trust, calibration, under, kept (how many first forecasts are kept).
WITH t AS MATERIALIZED (
    SELECT x.*, to_timestamp(%(at_s)s) AS at FROM jsonb_to_recordset(%(tasks)s::jsonb) AS x(
        task bigint, tenant integer, "position" integer, start_p50 double precision, start_p90 double precision,
        end_p50 double precision, end_p90 double precision, reason text, subject text, moved text)
),
r AS MATERIALIZED (
    SELECT x.*, to_timestamp(%(at_s)s) AS at FROM jsonb_to_recordset(%(runs)s::jsonb) AS x(
        run bigint, tenant integer, end_p50 double precision, end_p90 double precision, reason text, moved text)
),
gone AS (
    DELETE FROM forecast WHERE task_id NOT IN (SELECT task FROM t)
),
kept AS (
    INSERT INTO forecast (task_id, tenant_id, "position", start_p50, start_p90, end_p50, end_p90, reason, subject, moved, at)
    SELECT task, tenant, "position", to_timestamp(start_p50), to_timestamp(start_p90), to_timestamp(end_p50),
           to_timestamp(end_p90), reason, subject, moved, at
    FROM t
    ON CONFLICT (task_id) DO UPDATE SET
        tenant_id = excluded.tenant_id, "position" = excluded."position", start_p50 = excluded.start_p50,
        start_p90 = excluded.start_p90, end_p50 = excluded.end_p50, end_p90 = excluded.end_p90, reason = excluded.reason,
        subject = excluded.subject, moved = excluded.moved, at = excluded.at
    RETURNING 1
),
runs_gone AS (
    DELETE FROM run_forecast WHERE run_id NOT IN (SELECT run FROM r)
),
runs_kept AS (
    INSERT INTO run_forecast (run_id, tenant_id, end_p50, end_p90, reason, moved, at)
    SELECT run, tenant, to_timestamp(end_p50), to_timestamp(end_p90), reason, moved, at FROM r
    ON CONFLICT (run_id) DO UPDATE SET
        tenant_id = excluded.tenant_id, end_p50 = excluded.end_p50, end_p90 = excluded.end_p90, reason = excluded.reason,
        moved = excluded.moved, at = excluded.at
),
first AS (
    INSERT INTO forecast_borne (task_id, priority, at, raw_p50_s, raw_p90_s, shown_p50_s, shown_p90_s, plain_s)
    SELECT task, priority, to_timestamp(%(at_s)s), raw_p50_s, raw_p90_s, shown_p50_s, shown_p90_s, plain_s
    FROM jsonb_to_recordset(%(first)s::jsonb) AS x(
        task bigint, priority smallint, raw_p50_s double precision, raw_p90_s double precision,
        shown_p50_s double precision, shown_p90_s double precision, plain_s double precision)
    ON CONFLICT (task_id) DO NOTHING
),
old AS (
    DELETE FROM forecast_borne
    WHERE actual_s IS NOT NULL
      AND at < (SELECT at FROM forecast_borne ORDER BY at DESC OFFSET %(kept)s LIMIT 1)
),
p AS (
    INSERT INTO forecast_pass (id, at, took_s, waiting, looked_at, most, trust, calibration, under)
    VALUES (1, to_timestamp(%(at_s)s), %(took_s)s, %(waiting)s, %(looked_at)s, %(most)s, %(trust)s,
            %(calibration)s::jsonb, %(under)s::jsonb)
    ON CONFLICT (id) DO UPDATE SET
        at = excluded.at, took_s = excluded.took_s, waiting = excluded.waiting, looked_at = excluded.looked_at,
        most = excluded.most, trust = excluded.trust, calibration = excluded.calibration, under = excluded.under
)
SELECT count(*)::integer FROM kept
