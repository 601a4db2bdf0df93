-- One run with its tasks counted by state, spawned ones included. Returns: see queries.RunView.
-- Needs: run's unique index on public_id, task_of_run. Parameters: run (public id).
SELECT r.id, r.public_id, r.name, r.size, r.fanout_cap, r.want, r.created_at,
       coalesce((SELECT jsonb_object_agg(c.state, c.n)
                 FROM (SELECT state, count(*) AS n FROM task WHERE run_id = r.id AND run_id <> 0 GROUP BY state) c), '{}')
FROM run r WHERE r.public_id = %(run)s
