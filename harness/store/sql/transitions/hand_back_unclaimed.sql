-- Take back leases that nobody claimed in time, or that could not be published: the tasks are ready again.
-- Returns: task id. Needs: lease_pkey (a scan: few rows), lease_member_of_lease, task_pkey.
-- Locks: leases by id, then tasks by id. Parameters: leases (ids, or null: those older than older_than_s), older_than_s, limit.
WITH l AS MATERIALIZED (
    SELECT id FROM lease
    WHERE claimed_at IS NULL AND (
        (%(leases)s::bigint[] IS NULL AND released_at < clock_timestamp() - make_interval(secs => %(older_than_s)s))
        OR id = ANY(%(leases)s::bigint[]))
    ORDER BY id LIMIT %(limit)s FOR UPDATE
),
m AS MATERIALIZED (
    DELETE FROM lease_member USING l WHERE lease_member.lease_id = l.id
    RETURNING lease_member.task_id, lease_member.release_no
),
locked AS MATERIALIZED (
    SELECT t.id FROM (SELECT * FROM m ORDER BY task_id) m CROSS JOIN LATERAL (
        SELECT id FROM task
        WHERE id = m.task_id AND release_no = m.release_no AND state IN ('queued', 'waiting_approval') FOR UPDATE) t
),
t AS (
    UPDATE task SET ready = true FROM locked WHERE task.id = locked.id
    RETURNING task.id, task.tenant_id, task.pool, task.priority, task.run_id, task.signature
),
f AS (
    INSERT INTO flow (pool, priority, tenant_id, run_id, signature)
    SELECT DISTINCT pool, priority, tenant_id, run_id, signature FROM t
    ON CONFLICT (pool, priority, tenant_id, run_id, signature) DO NOTHING
),
z AS (
    DELETE FROM lease USING l WHERE lease.id = l.id
)
SELECT id FROM t
