-- Fold what was used into the estimates, each charge once: deleted and added up in one statement, by the leader.
-- The leader's row isn't locked: a fold that has to wait must not keep it from renewing its lead. Two at once are right
-- too, each charge is deleted once.
-- Returns: how many charges. Needs: charge_pkey, estimate_pkey. Locks: charges, estimates.
-- Parameters: epoch, weight (of one task in the moving mean), limit.
WITH fence AS MATERIALIZED (
    SELECT FROM leader WHERE id = 1 AND epoch = %(epoch)s
),
oldest AS MATERIALIZED (
    SELECT id FROM charge WHERE EXISTS (SELECT FROM fence) ORDER BY id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM charge USING oldest WHERE charge.id = oldest.id RETURNING kind, n, slot_s
),
used AS (
    SELECT kind, sum(n) AS n, sum(slot_s) / sum(n) AS mean_s FROM gone GROUP BY kind
),
i AS (
    INSERT INTO estimate (kind, mean_s) SELECT kind, mean_s FROM used
    ON CONFLICT (kind) DO UPDATE SET mean_s = estimate.mean_s + (excluded.mean_s - estimate.mean_s)
        * (1 - power(1 - %(weight)s::double precision, least(100, (SELECT n FROM used WHERE used.kind = excluded.kind))))
)
SELECT count(*) FROM gone
