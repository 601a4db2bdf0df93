-- The retry budget, step by step as in policy/retry_budget.
-- Let time bring what it brings. Returns the most that can be kept.
function P.budget_grown(st, now, per_s)
    local past, came, passed_s = now - st.u_began_s, 0, $retry_budget.KEEP_S
    if past < 0 then past = 0 end
    if past < $retry_budget.KEEP_S then
        came = st.u_came + st.u_came_before * (1 - past / $retry_budget.KEEP_S)
    elseif past < 2 * $retry_budget.KEEP_S then
        came = st.u_came * (2 - past / $retry_budget.KEEP_S)
    end
    local most = came + per_s * $retry_budget.KEEP_S
    if most < 1 then most = 1 end
    if most > $retry_budget.MOST then most = $retry_budget.MOST end
    if st.u_at_s > 0 then passed_s = now - st.u_at_s end
    if passed_s < 0 then passed_s = 0 end
    local tokens = st.u_tokens + per_s * passed_s
    st.u_tokens = tokens < most and tokens or most
    if st.u_at_s < now then st.u_at_s = now end
    return most
end

function P.budget_first(st, now, ratio, per_s)
    local past = now - st.u_began_s
    if past >= $retry_budget.KEEP_S then
        st.u_came_before = past < 2 * $retry_budget.KEEP_S and st.u_came or 0
        st.u_came, st.u_began_s = 0, now
    end
    st.u_came = st.u_came + ratio
    local most = P.budget_grown(st, now, per_s)
    local tokens = st.u_tokens + ratio
    st.u_tokens = tokens < most and tokens or most
end
