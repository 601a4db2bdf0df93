-- Trace events of tasks that somebody watches, after those already seen; a task without news costs one row.
-- Returns: task id, then queries.EventView; by task, in order. Needs: task_pkey, event_of_task. Locks: nothing.
-- Parameters: tasks (ids), seqs (the last event seen of each).
SELECT t.id, e.seq, e.at, e.event, e.from_state, e.to_state, e.actor, e.data
FROM unnest(%(tasks)s::bigint[], %(seqs)s::integer[]) AS seen(task, seq)
JOIN task t ON t.id = seen.task AND t.event_no > seen.seq
JOIN event e ON e.task_id = seen.task AND e.seq > seen.seq
ORDER BY t.id, e.seq
