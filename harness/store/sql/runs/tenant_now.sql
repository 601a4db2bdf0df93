-- A tenant's work at a glance: tasks on workers now (exact), live ones by state (no more than `live` are counted), what of
-- its newest `newest` tasks has ended in the last day, by state, and whether older ones than those may have, too.
-- Returns: running, {state: n}, {state: n}, boolean.
-- Needs: task_live, task_of_tenant; lease and lease_member are small. Locks: nothing. Parameters: tenant, live, newest.
WITH newest AS MATERIALIZED (
    SELECT state, finished_at, created_at FROM task WHERE tenant_id = %(tenant)s ORDER BY id DESC LIMIT %(newest)s
)
SELECT (SELECT count(*) FROM lease_member m JOIN lease l ON l.id = m.lease_id
        WHERE m.tenant_id = %(tenant)s AND l.claimed_at IS NOT NULL)::integer,
       (SELECT coalesce(jsonb_object_agg(state, n), '{}') FROM (
            SELECT state, count(*) AS n
            FROM (SELECT state FROM task WHERE tenant_id = %(tenant)s AND finished_at IS NULL LIMIT %(live)s) AS living
            GROUP BY state) AS by_state),
       (SELECT coalesce(jsonb_object_agg(state, n), '{}') FROM (
            SELECT state, count(*) AS n
            FROM newest WHERE finished_at > clock_timestamp() - interval '1 day' GROUP BY state) AS by_state),
       (SELECT count(*) = %(newest)s AND min(created_at) > clock_timestamp() - interval '1 day' FROM newest)
