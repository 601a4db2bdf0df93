-- A failed call's task will come back: take that from the resource's retry budget, as a debt when it is empty, and say for how
-- long it must wait; step by step as in policy/retry_budget.
-- KEYS: 1 the resource. ARGV: 1 time ('': the server's), 2 config.
-- TTL: as permit_core. Returns: seconds until it may.
local now, cfg = P.clock(ARGV[1]), {struct.unpack('$config_of.FORMAT', ARGV[2])}
local st, wait = P.load(KEYS[1], cfg, now, 0), 0
P.budget_grown(st, now, cfg.per_s)
if st.u_tokens >= 1 - 1e-9 then
    st.u_tokens = st.u_tokens - 1
elseif cfg.per_s <= 0 then
    wait = $retry_budget.KEEP_S
else
    st.u_tokens = math.max(st.u_tokens - 1, -$retry_budget.OWED_S * cfg.per_s)
    wait = -st.u_tokens / cfg.per_s
end
P.save(KEYS[1], st)
return P.exact(wait)
