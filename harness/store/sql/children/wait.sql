-- Note what a running task is about to wait for, parked. Fenced by task and release_no.
-- Returns: the task's id; no row: it is no longer this release's. Needs: task_pkey, gathering_pkey. Locks: the new row.
-- Parameters: task, release_no, need, total, firsts, counts.
INSERT INTO gathering (task_id, tenant_id, need, total, firsts, counts)
SELECT id, tenant_id, %(need)s, %(total)s, %(firsts)s::bigint[], %(counts)s::integer[]
FROM task WHERE id = %(task)s AND release_no = %(release_no)s AND state = 'running'
ON CONFLICT (task_id) DO UPDATE SET need = excluded.need, total = excluded.total, firsts = excluded.firsts,
    counts = excluded.counts
RETURNING task_id
