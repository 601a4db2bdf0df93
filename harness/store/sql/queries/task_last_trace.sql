-- The newest of a task's trace events, newest first, before one. Returns: see queries.EventView. Needs: event_of_task.
-- Parameters: task (id), before (seq), most.
SELECT seq, at, event, from_state, to_state, actor, data FROM event
WHERE task_id = %(task)s AND seq < %(before)s ORDER BY seq DESC LIMIT %(most)s
