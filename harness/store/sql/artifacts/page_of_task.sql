-- A page of the artifacts that a task made, newest first. Returns: artifacts.ArtifactView.
-- Needs: task's unique index on public_id, artifact_of_task. Locks: nothing. Parameters: tenant, task (public id), before (id),
-- most.
SELECT a.id, a.public_id, a.tenant_id, t.public_id, a.name, a.content_type, a.bytes, a.sha256, a.path, a.created_at, a.expires_at
FROM artifact a JOIN task t ON t.id = a.task_id
WHERE a.task_id = (SELECT id FROM task WHERE public_id = %(task)s AND tenant_id = %(tenant)s)
  AND a.tenant_id = %(tenant)s AND a.id < %(before)s AND a.state = 'stored' AND a.expires_at > clock_timestamp()
ORDER BY a.id DESC LIMIT %(most)s
