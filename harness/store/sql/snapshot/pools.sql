-- Which of these pools have a flow at all. Returns: pool. Needs: flow_in_order. Parameters: pools.
SELECT p.name FROM unnest(%(pools)s::text[]) AS p(name) WHERE EXISTS (SELECT FROM flow WHERE flow.pool = p.name)
