-- A task's trace events after one, in order. Returns: see queries.EventView. Needs: event_of_task.
-- Parameters: task (id), after (seq), most.
SELECT seq, at, event, from_state, to_state, actor, data FROM event
WHERE task_id = %(task)s AND seq > %(after)s ORDER BY seq LIMIT %(most)s
