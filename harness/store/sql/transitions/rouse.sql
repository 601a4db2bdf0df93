-- Look at tasks of which a notice says that what they wait for may be over. A parked parent whose children ended (or as many
-- succeeded as it needs) loses the hold `children`: queued and ready without another. A task whose dependencies have all
-- succeeded ripens. A notice stays when somebody has locked its task; what is decided, is so in this one snapshot.
-- A parent that parks after it brings a notice of its own, so one that isn't parked yet needs none.
-- Returns: task id, whether it is ready now, of each that changed. Needs: notice_pkey, task_pkey, gathering_pkey, task_of_parent, dependency_unmet.
-- Locks: tasks by id; new flow rows. Parameters: limit (notices), actor.
WITH n AS MATERIALIZED (
    SELECT id, task_id FROM notice WHERE NOT down ORDER BY id LIMIT %(limit)s
),
seen AS MATERIALIZED (
    SELECT t.id FROM (SELECT DISTINCT task_id FROM n) about CROSS JOIN LATERAL (
        SELECT id FROM task WHERE id = about.task_id
        AND (state = 'paused' AND 'children' = ANY(holds) OR state IN ('queued', 'paused') AND depends)) t
),
locked AS MATERIALIZED (
    SELECT t.* FROM (SELECT id FROM seen ORDER BY id) seen CROSS JOIN LATERAL (
        SELECT id, state, holds, depends, not_before FROM task WHERE id = seen.id
        AND (state = 'paused' AND 'children' = ANY(holds) OR state IN ('queued', 'paused') AND depends)
        FOR UPDATE SKIP LOCKED) t
),
gone AS (
    DELETE FROM notice USING n WHERE notice.id = n.id
    AND (NOT EXISTS (SELECT FROM seen WHERE seen.id = n.task_id) OR EXISTS (SELECT FROM locked WHERE locked.id = n.task_id))
),
over AS MATERIALIZED (
    SELECT l.id, l.state, l.not_before, 'unpark' AS event, array_remove(l.holds, 'children') AS left_holds
    FROM locked l LEFT JOIN gathering g ON g.task_id = l.id
    WHERE NOT l.depends AND (
        NOT EXISTS (
            SELECT FROM unnest(g.firsts, g.counts) AS x(first, n) CROSS JOIN LATERAL (
                -- The last by finished_at, a live one before all others. (Asked for by IS NULL, task_live would do, too: all
                -- live tasks there are.)
                SELECT c.finished_at IS NULL AS live FROM task c
                WHERE c.parent_id = l.id AND c.id >= x.first AND c.id < x.first + x.n
                ORDER BY c.finished_at DESC, c.id DESC LIMIT 1) newest
            WHERE newest.live)
        OR g.need < g.total AND g.need <= (SELECT count(*) FROM (
            SELECT FROM unnest(g.firsts, g.counts) AS x(first, n) CROSS JOIN LATERAL (
                SELECT FROM task c WHERE c.parent_id = l.id AND c.id >= x.first AND c.id < x.first + x.n
                AND c.state = 'succeeded') ok LIMIT g.need) enough))
    UNION ALL
    SELECT l.id, l.state, l.not_before, 'ripen', l.holds FROM locked l
    WHERE l.depends AND NOT EXISTS (SELECT FROM dependency d WHERE d.task_id = l.id AND NOT d.met)
),
t AS (
    UPDATE task SET
        state = CASE WHEN over.left_holds = '{}' THEN 'queued' ELSE 'paused' END,
        holds = over.left_holds,
        depends = false,
        ready = over.left_holds = '{}' AND over.not_before IS NULL,
        ready_at = clock_timestamp(),
        -- What it depended on is over, but its time hasn't come, or someone holds it: that tells by itself when it ripens.
        event_no = event_no + CASE WHEN over.event = 'unpark' OR over.left_holds = '{}' AND over.not_before IS NULL THEN 1 ELSE 0 END
    FROM over WHERE task.id = over.id
    RETURNING task.id, task.tenant_id, task.pool, task.priority, task.run_id, task.signature, task.ready, task.event_no,
              task.state, over.state AS from_state, over.event
),
e AS (
    INSERT INTO event (task_id, tenant_id, seq, at, event, from_state, to_state, actor, data)
    SELECT id, tenant_id, event_no, clock_timestamp(), event, from_state, state, %(actor)s,
           CASE WHEN event = 'ripen' THEN '{"dependencies": "succeeded"}'::jsonb END
    FROM t
    WHERE event = 'unpark' OR ready
),
g AS (
    DELETE FROM gathering USING t WHERE gathering.task_id = t.id AND t.event = 'unpark'
),
f AS (
    INSERT INTO flow (pool, priority, tenant_id, run_id, signature)
    SELECT DISTINCT pool, priority, tenant_id, run_id, signature FROM t WHERE ready
    ON CONFLICT (pool, priority, tenant_id, run_id, signature) DO NOTHING
)
SELECT id, ready FROM t
