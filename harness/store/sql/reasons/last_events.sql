-- The newest changes of a task's state, the newest first: events of its steps aren't among them. Returns: at (epoch seconds), event, state after, actor, data.
-- Needs: event_of_task. Locks: nothing. Parameters: task (id), without (events), most.
SELECT extract(epoch FROM at)::double precision, event, to_state, actor, data FROM event
WHERE task_id = %(task)s AND event <> ALL(%(without)s::text[]) ORDER BY seq DESC LIMIT %(most)s
