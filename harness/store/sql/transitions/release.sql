-- Commit a plan: leases with their members, the fence (release_no) of each task, and the flows' new ranks.
-- A task that is no longer ready, or whose row somebody has locked, is left out: one forgotten transaction must not keep
-- everybody waiting. A lease without members is not made. Nothing happens under another epoch.
-- Returns: lease id, token of each lease made.
-- Needs: task_pkey. Locks: leader (share), then tasks by id; the lease rows are new.
-- Parameters: epoch; leases (jsonb array of lease values, each with its token and its tasks); flows (served flow ids).
WITH fence AS MATERIALIZED (
    SELECT FROM leader WHERE id = 1 AND epoch = %(epoch)s FOR SHARE
),
p AS MATERIALIZED (
    SELECT x.*, nextval('lease_id_seq') AS id
    FROM jsonb_to_recordset(%(leases)s::jsonb) AS x(
        token bigint, pool text, via text, tenant integer, run bigint, priority smallint, kind text,
        signature text, est_s double precision, timeout_s double precision, tasks bigint[])
    WHERE EXISTS (SELECT FROM fence)
),
want AS MATERIALIZED (
    SELECT p.id AS lease, m.task, m.ordinal FROM p CROSS JOIN LATERAL unnest(p.tasks) WITH ORDINALITY AS m(task, ordinal)
),
locked AS MATERIALIZED (
    SELECT t.id, t.tenant_id, t.release_no + 1 AS release_no, w.lease, w.ordinal
    FROM (SELECT * FROM want ORDER BY task) w CROSS JOIN LATERAL (
        -- not `ready`: that would invite a scan of the whole index task_head
        SELECT id, tenant_id, release_no FROM task WHERE id = w.task AND ready::integer = 1 FOR UPDATE SKIP LOCKED) t
),
u AS (
    UPDATE task SET ready = false, release_no = locked.release_no FROM locked WHERE task.id = locked.id
),
m AS (
    INSERT INTO lease_member (task_id, tenant_id, lease_id, release_no, ordinal)
    SELECT id, tenant_id, lease, release_no, ordinal FROM locked
),
l AS (
    INSERT INTO lease (id, token, pool, via, tenant_id, run_id, priority, kind, signature, est_s, timeout_s, n, released_at)
    SELECT p.id, p.token, p.pool, p.via, p.tenant, p.run, p.priority, p.kind, p.signature, p.est_s, p.timeout_s,
           counted.n, clock_timestamp()
    FROM p JOIN (SELECT lease, count(*) AS n FROM locked GROUP BY lease) counted ON counted.lease = p.id
    RETURNING id, token
),
served AS (
    -- One time for all that this tick served: which of them is updated first means nothing, the id decides.
    UPDATE flow SET rank = extract(epoch FROM statement_timestamp())
    WHERE id = ANY(%(flows)s::bigint[]) AND EXISTS (SELECT FROM fence)
)
SELECT id, token FROM l
