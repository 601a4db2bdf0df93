-- Keep what the door goes by, under the leader's epoch. Returns: nothing. Needs: door_pkey. Locks: the row.
-- Parameters: at (epoch seconds), last_task, facts (jsonb), epoch.
INSERT INTO door (id, at, last_task, facts)
SELECT 1, to_timestamp(%(at)s), %(last_task)s, %(facts)s::jsonb
WHERE EXISTS (SELECT FROM leader WHERE id = 1 AND epoch = %(epoch)s)
ON CONFLICT (id) DO UPDATE SET at = excluded.at, last_task = excluded.last_task, facts = excluded.facts
