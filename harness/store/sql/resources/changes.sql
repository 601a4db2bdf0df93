-- The newest changes of limits. Returns: resource, at, old, new, reason, mode. Needs: limit_change_of_resource,
-- limit_change_at. Locks: none. Parameters: resource (null: of all), most.
SELECT resource, at, old, new, reason, mode FROM limit_change
WHERE %(resource)s::text IS NULL OR resource = %(resource)s
ORDER BY at DESC, id DESC LIMIT %(most)s
