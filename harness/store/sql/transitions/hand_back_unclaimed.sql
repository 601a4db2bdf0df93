-- Take back leases that nobody claimed in time, or that could not be published: the tasks are ready again, and what was
-- charged for them at release is given back.
-- A lease that somebody has locked, itself or a task of it, is for the next round.
-- Returns: task id. Needs: lease_pkey (a scan: few rows), lease_member_of_lease, lease_member_pkey, task_pkey.
-- Locks: leases by id, then tasks by id. Parameters: leases (ids, or null: those older than older_than_s), older_than_s, limit.
WITH l AS MATERIALIZED (
    SELECT id, pool, priority, lane, tenant_id, run_id, kind, est_s, cost FROM lease
    WHERE claimed_at IS NULL AND (
        (%(leases)s::bigint[] IS NULL AND released_at < clock_timestamp() - make_interval(secs => %(older_than_s)s))
        OR id = ANY(%(leases)s::bigint[]))
    ORDER BY id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
),
tried AS MATERIALIZED (
    SELECT m.task_id, m.release_no, m.lease_id, t.id
    FROM (SELECT m.* FROM l JOIN lease_member m ON m.lease_id = l.id ORDER BY m.task_id) m LEFT JOIN LATERAL (
        SELECT id FROM task
        WHERE id = m.task_id AND release_no = m.release_no AND state IN ('queued', 'waiting_approval')
          AND NOT ready AND not_before IS NULL -- else it has left the lease since: the next round sees that
        FOR UPDATE SKIP LOCKED) t ON true
),
busy AS MATERIALIZED (
    SELECT array(SELECT lease_id FROM tried WHERE id IS NULL AND EXISTS (
        SELECT FROM task WHERE task.id = tried.task_id AND task.release_no = tried.release_no
        AND state IN ('queued', 'waiting_approval'))) AS leases
),
free AS MATERIALIZED (
    SELECT l.* FROM l CROSS JOIN busy WHERE NOT l.id = ANY(busy.leases)
),
m AS (
    DELETE FROM lease_member USING tried, free
    WHERE lease_member.task_id = tried.task_id AND lease_member.lease_id = tried.lease_id AND tried.lease_id = free.id
),
t AS (
    UPDATE task SET ready = true FROM tried, free WHERE task.id = tried.id AND tried.lease_id = free.id
    RETURNING task.id, task.tenant_id, task.pool, task.priority, task.run_id, task.signature
),
f AS (
    INSERT INTO flow (pool, priority, tenant_id, run_id, signature)
    SELECT DISTINCT pool, priority, tenant_id, run_id, signature FROM t
    ON CONFLICT (pool, priority, tenant_id, run_id, signature) DO NOTHING
),
c AS (
    INSERT INTO charge (lease_id, pool, priority, lane, tenant_id, run_id, kind, n, slot_s, owed_s)
    SELECT id, pool, priority, lane, tenant_id, run_id, kind, 0, 0,
           -(SELECT count(*) FROM tried WHERE tried.lease_id = free.id) * est_s * cost
    FROM free
),
z AS (
    DELETE FROM lease USING free WHERE lease.id = free.id
)
SELECT id FROM t
