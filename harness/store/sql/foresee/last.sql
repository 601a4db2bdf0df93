-- The last pass, and what it left to be held against what comes. First what has come since is written: the first claim of a
-- task tells when it began; one that ended without it, or whose first claim is older than the forecast, tells nothing.
-- Returns: one JSON object: pass [epoch s, most, under, took_s], shown [task, start p50, p90, end p50, p90 (epoch s)],
-- runs [run, end p50, p90], borne [priority, age_s, raw p50, raw p90, shown p50, shown p90, actual_s, plain_s], the newest
-- first, known [tasks that have a first forecast]; and now (epoch s). Nothing yet: pass is null.
-- Needs: forecast_borne_open, forecast_borne_at, task_pkey. Locks: rows of forecast_borne. Parameters: borne (most).
WITH o AS MATERIALIZED (
    SELECT b.task_id, b.at, t.first_claimed_at, t.finished_at, t.id
    FROM forecast_borne b LEFT JOIN task t ON t.id = b.task_id WHERE b.actual_s IS NULL
),
u AS (
    UPDATE forecast_borne b SET actual_s = greatest(0, date_part('epoch', o.first_claimed_at - o.at))
    FROM o WHERE b.task_id = o.task_id AND o.first_claimed_at >= o.at - interval '1 s'
    RETURNING b.task_id, b.actual_s
),
d AS (
    DELETE FROM forecast_borne b USING o
    WHERE b.task_id = o.task_id AND (o.id IS NULL OR (o.first_claimed_at IS NULL AND o.finished_at IS NOT NULL)
                                     OR o.first_claimed_at < o.at - interval '1 s')
    RETURNING b.task_id
),
newest AS MATERIALIZED (
    SELECT b.*, u.actual_s AS just_s FROM (SELECT * FROM forecast_borne ORDER BY at DESC LIMIT %(borne)s) b
    LEFT JOIN u ON u.task_id = b.task_id WHERE b.task_id NOT IN (SELECT task_id FROM d)
)
SELECT json_build_object(
    'now', date_part('epoch', clock_timestamp()),
    'pass', (SELECT json_build_array(date_part('epoch', at), most, under, took_s) FROM forecast_pass WHERE id = 1),
    'shown', (SELECT coalesce(json_agg(json_build_array(
                  task_id, date_part('epoch', start_p50), date_part('epoch', start_p90), date_part('epoch', end_p50),
                  date_part('epoch', end_p90))), '[]') FROM forecast WHERE start_p50 IS NOT NULL OR end_p50 IS NOT NULL),
    'runs', (SELECT coalesce(json_agg(json_build_array(run_id, date_part('epoch', end_p50), date_part('epoch', end_p90))), '[]')
             FROM run_forecast WHERE end_p50 IS NOT NULL),
    'borne', (SELECT coalesce(json_agg(json_build_array(
                  priority, date_part('epoch', clock_timestamp() - at), raw_p50_s, raw_p90_s, shown_p50_s, shown_p90_s,
                  coalesce(just_s, actual_s), plain_s) ORDER BY at DESC), '[]') FROM newest),
    'known', (SELECT coalesce(json_agg(task_id), '[]') FROM o WHERE o.finished_at IS NULL))
