-- Delete old events of the default partition whose task is gone. Returns: nothing.
-- Needs: task_pkey; reads event_rest, which holds little. Locks: the rows. Parameters: before, limit.
DELETE FROM event WHERE at < %(before)s AND (tableoid, ctid) IN (
    SELECT e.tableoid, e.ctid FROM event e
    WHERE e.at < %(before)s AND e.tableoid = 'event_rest'::regclass
      AND NOT EXISTS (SELECT FROM task t WHERE t.id = e.task_id)
    LIMIT %(limit)s
)
