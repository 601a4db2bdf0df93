-- The newest changes of one resource's limit. Returns: resource, at, old, new, reason, mode.
-- Needs: limit_change_of_resource. Locks: none. Parameters: resource, most.
SELECT resource, at, old, new, reason, mode FROM limit_change
WHERE resource = %(resource)s ORDER BY at DESC, id DESC LIMIT %(most)s
