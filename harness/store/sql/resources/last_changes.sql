-- The newest change of each of these resources' limits. Returns: resource, at, old, new, reason, mode.
-- Needs: limit_change_of_resource. Locks: none. Parameters: resources (names).
SELECT c.resource, c.at, c.old, c.new, c.reason, c.mode
FROM unnest(%(resources)s::text[]) AS n(name) CROSS JOIN LATERAL (
    SELECT resource, at, old, new, reason, mode FROM limit_change
    WHERE resource = n.name ORDER BY resource DESC, at DESC LIMIT 1) c
