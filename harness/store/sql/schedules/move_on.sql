-- Move a schedule on, if it still stands where it was seen: the compare-and-set that makes each moment fire once.
-- Returns: true, or no row. Needs: schedule_pkey. Locks: the schedule's row.
-- Parameters: schedule, seen (next_at), next_at (null: never again), look_at, fired (number), task (last, or null),
-- stopped_because (null: all is well), enabled, now.
UPDATE schedule SET
    next_at = %(next_at)s, look_at = %(look_at)s, enabled = %(enabled)s, stopped_because = %(stopped_because)s,
    fired = fired + %(fired)s, last_task = coalesce(%(task)s, last_task),
    last_fired_at = CASE WHEN %(fired)s > 0 THEN %(now)s::timestamptz ELSE last_fired_at END
WHERE id = %(schedule)s AND next_at = %(seen)s AND enabled
RETURNING true
