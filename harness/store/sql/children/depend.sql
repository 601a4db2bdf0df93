-- Tasks just submitted depend on others of their run. Returns: nothing. Needs: dependency_pkey. Locks: the new rows.
-- Parameters: tenant, tasks, ons (arrays of one length).
INSERT INTO dependency (task_id, on_id, tenant_id)
SELECT task, on_id, %(tenant)s FROM unnest(%(tasks)s::bigint[], %(ons)s::bigint[]) AS x(task, on_id)
