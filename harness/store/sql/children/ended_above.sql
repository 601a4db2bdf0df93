-- Tasks of which a notice says that something below or beside them may have to be cancelled.
-- Returns: task id, the last notice of it, its public id, state and reason if it has ended (else nulls). Needs: task_pkey, task_body_pkey.
-- Locks: nothing. Parameters: after (notice), limit.
SELECT n.task_id, n.last, t.public_id, CASE WHEN t.finished_at IS NOT NULL THEN t.state END,
       CASE WHEN t.finished_at IS NOT NULL THEN (SELECT b.error ->> 'message' FROM task_body b WHERE b.task_id = t.id) END
FROM (SELECT task_id, max(id) AS last FROM notice WHERE down GROUP BY task_id HAVING max(id) > %(after)s ORDER BY max(id) LIMIT %(limit)s) n
LEFT JOIN task t ON t.id = n.task_id
