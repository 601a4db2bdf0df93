-- Commit a plan: leases with their members, the fence (release_no) of each task, and the flows' new ranks.
-- A task that is no longer ready, or whose row somebody has locked, is left out: one forgotten transaction must not keep
-- everybody waiting. So is one whose row has moved since the look: the next tick finds it at its new place. A lease
-- without members is not made. Nothing happens under another epoch.
-- Returns: lease id, token of each lease made.
-- Needs: no index on task: rows are found where the look saw them (their ctid), whatever the table's size; the id says
-- that it is still the same task. Locks: leader (share), then tasks by id; the lease rows are new.
-- Parameters: epoch; leases (jsonb array of lease values, each with its token, its tasks and their places); flows
-- (served flow ids).
WITH fence AS MATERIALIZED (
    SELECT FROM leader WHERE id = 1 AND epoch = %(epoch)s FOR SHARE
),
p AS MATERIALIZED (
    SELECT x.*, nextval('lease_id_seq') AS id
    FROM jsonb_to_recordset(%(leases)s::jsonb) AS x(
        token bigint, pool text, via text, tenant integer, run bigint, priority smallint, kind text,
        signature text, est_s double precision, timeout_s double precision, tasks bigint[], places tid[])
    WHERE EXISTS (SELECT FROM fence)
),
want AS MATERIALIZED (
    SELECT p.id AS lease, m.task, m.place, m.ordinal
    FROM p CROSS JOIN LATERAL unnest(p.tasks, p.places) WITH ORDINALITY AS m(task, place, ordinal)
),
locked AS MATERIALIZED (
    SELECT t.place, w.lease, w.ordinal
    FROM (SELECT * FROM want ORDER BY task) w CROSS JOIN LATERAL (
        -- not `ready` and not `id = w.task` alone: those would invite an index
        SELECT ctid AS place FROM task WHERE ctid = w.place AND id + 0 = w.task AND ready::integer = 1
        FOR UPDATE SKIP LOCKED) t
),
u AS (
    UPDATE task SET ready = false, release_no = release_no + 1 FROM locked WHERE task.ctid = locked.place
    RETURNING task.id, task.tenant_id, task.release_no, locked.lease, locked.ordinal
),
-- What follows takes what was updated, not what was locked: of a row that moved after this statement began, a server that
-- doesn't check the place again locks the new version, which the update, by the statement's own snapshot, doesn't see.
m AS (
    INSERT INTO lease_member (task_id, tenant_id, lease_id, release_no, ordinal)
    SELECT id, tenant_id, lease, release_no, ordinal FROM u
),
l AS (
    INSERT INTO lease (id, token, pool, via, tenant_id, run_id, priority, kind, signature, est_s, timeout_s, n, released_at)
    SELECT p.id, p.token, p.pool, p.via, p.tenant, p.run, p.priority, p.kind, p.signature, p.est_s, p.timeout_s,
           counted.n, clock_timestamp()
    FROM p JOIN (SELECT lease, count(*) AS n FROM u GROUP BY lease) counted ON counted.lease = p.id
    RETURNING id, token
),
served AS (
    -- One time for all that this tick served: which of them is updated first means nothing, the id decides.
    UPDATE flow SET rank = extract(epoch FROM statement_timestamp())
    WHERE id = ANY(%(flows)s::bigint[]) AND EXISTS (SELECT FROM fence)
)
SELECT id, token FROM l
