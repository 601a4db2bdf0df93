-- Keep one evaluation of the pressure; drop those that are older than `whole_s`, but for one in `apart_s`, and all that are
-- older than `kept_s`. Returns: nothing. Needs: evaluation_pkey. Locks: what it drops (who writes holds the lock of `observe`).
-- Parameters: level, signals, resources, tenants (jsonb), whole_s, apart_s, kept_s.
WITH old AS (
    DELETE FROM evaluation
    WHERE at < clock_timestamp() - make_interval(secs => %(whole_s)s)
      AND (NOT kept OR at < clock_timestamp() - make_interval(secs => %(kept_s)s))
)
INSERT INTO evaluation (at, level, signals, resources, tenants, kept)
SELECT clock_timestamp(), %(level)s, %(signals)s::jsonb, %(resources)s::jsonb, %(tenants)s::jsonb, NOT EXISTS (
    SELECT FROM evaluation WHERE kept AND at > clock_timestamp() - make_interval(secs => %(apart_s)s))
ON CONFLICT (at) DO NOTHING
