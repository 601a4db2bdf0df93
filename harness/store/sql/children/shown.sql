-- Some children of a task, those first that may need somebody: failed, asking, trying again, running. Returns: public id, title or
-- kind, state, first claimed, finished at.
-- Needs: task_of_parent, task_body_pkey. Locks: nothing. Parameters: parent (id), looked (children), most.
SELECT c.public_id, coalesce(nullif(b.title, ''), c.kind), c.state, c.first_claimed_at, c.finished_at
FROM (SELECT id, public_id, kind, state, first_claimed_at, finished_at
      FROM (SELECT * FROM task WHERE parent_id = %(parent)s LIMIT %(looked)s) AS all_of_them
      ORDER BY coalesce(array_position('{failed_terminal,waiting_approval,failed_retryable,running,paused}', state), 9), id
      LIMIT %(most)s) AS c
LEFT JOIN task_body b ON b.task_id = c.id
ORDER BY coalesce(array_position('{failed_terminal,waiting_approval,failed_retryable,running,paused}', c.state), 9), c.id
