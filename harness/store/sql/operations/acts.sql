-- The newest acts of people that concern everyone's work. Returns: at (epoch seconds), actor, verb, subject, reason, data; the
-- newest first. Needs: audit_entry_pkey (cost: the last `look` entries). Locks: nothing. Parameters: look, verbs, most.
SELECT extract(epoch FROM at)::double precision, actor, verb, subject, reason, data
FROM (SELECT id, at, actor, verb, subject, reason, data FROM audit_entry ORDER BY id DESC LIMIT %(look)s) x
WHERE verb = ANY(%(verbs)s::text[]) ORDER BY id DESC LIMIT %(most)s
