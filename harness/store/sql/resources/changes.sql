-- The newest changes of limits. Returns: resource, at, old, new, reason, mode. Needs: limit_change_at. Locks: none.
-- Parameters: most.
SELECT resource, at, old, new, reason, mode FROM limit_change ORDER BY at DESC, id DESC LIMIT %(most)s
