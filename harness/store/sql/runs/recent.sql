-- A tenant's newest runs, with how far their first tasks are: of each run no more than `counted` are looked at.
-- Returns: see runs.RunLine, newest first. Needs: run_of_tenant, task_of_run. Locks: nothing.
-- Parameters: tenant, most, counted.
SELECT r.public_id, r.name, r.size, r.created_at, c.n::integer, c.ended::integer, c.failed::integer
FROM (SELECT id, public_id, name, size, created_at FROM run
      WHERE tenant_id = %(tenant)s AND id <> 0 ORDER BY id DESC LIMIT %(most)s) r
CROSS JOIN LATERAL (
    SELECT count(*) AS n, count(finished_at) AS ended, count(*) FILTER (WHERE state = 'failed_terminal') AS failed
    FROM (SELECT state, finished_at FROM task WHERE run_id = r.id AND run_id <> 0 ORDER BY id LIMIT %(counted)s) AS members
) c
ORDER BY r.id DESC
