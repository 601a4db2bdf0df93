-- Charges that count more than was released (one slot, charged twice), and charges that nobody folds while somebody leads.
-- Returns: rule, subject, lease id, tenant, facts. Needs: nothing on charge (the leader empties it each second); lease_pkey,
-- lease_member_of_lease. Locks: nothing. Parameters: bundle_most (members that a lease may have).
WITH charged AS MATERIALIZED (
    SELECT lease_id, min(tenant_id) AS tenant_id, sum(n) AS n FROM charge GROUP BY lease_id
),
judged AS MATERIALIZED (
    SELECT c.*, coalesce((SELECT l.n - (SELECT count(*) FROM lease_member m WHERE m.lease_id = l.id)
                          FROM lease l WHERE l.id = c.lease_id), %(bundle_most)s) AS most
    FROM charged c
)
SELECT 'charged_twice', 'lease ' || lease_id, lease_id, tenant_id, jsonb_build_object('charged', n, 'ended', most)
FROM judged WHERE n > most
UNION ALL
SELECT 'charges_not_folded', 'charges', NULL, NULL, jsonb_build_object('oldest', min(id), 'charges', count(*))
FROM charge WHERE EXISTS (SELECT FROM leader WHERE id = 1 AND until > clock_timestamp()) HAVING count(*) > 0
