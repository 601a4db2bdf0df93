-- Requests and tokens a minute, and the retry budget, step by step as in policy/bucket and policy/retry_budget.
function P.bucket_wait(st, o, per_minute, now, charge)
    local burst, unit_s = P.bucket_terms(st, o, per_minute)
    return math.max(0, math.max(st[o], now) + math.min(charge * unit_s, burst) - burst - now)
end

function P.bucket_take(st, o, per_minute, now, charge)
    local _, unit_s = P.bucket_terms(st, o, per_minute)
    st[o] = math.max(st[o], now) + charge * unit_s
    st[o + 1] = st[o + 1] + (charge - st[o + 1]) * (st[o + 1] > 0 and $bucket.TYPICAL_WEIGHT or 1)
end

function P.budget_most(st, now, per_s)
    local past, came = math.max(now - st.u_began_s, 0), nil
    if past >= 2 * $retry_budget.KEEP_S then
        came = 0
    elseif past >= $retry_budget.KEEP_S then
        came = st.u_came * (2 - past / $retry_budget.KEEP_S)
    else
        came = st.u_came + st.u_came_before * (1 - past / $retry_budget.KEEP_S)
    end
    return math.min($retry_budget.MOST, math.max(1, came + per_s * $retry_budget.KEEP_S))
end

function P.budget_grown(st, now, per_s)
    local passed_s = $retry_budget.KEEP_S
    if st.u_at_s > 0 then passed_s = math.max(now - st.u_at_s, 0) end
    st.u_tokens = math.min(st.u_tokens + per_s * passed_s, P.budget_most(st, now, per_s))
    st.u_at_s = math.max(st.u_at_s, now)
end

function P.budget_first(st, now, ratio, per_s)
    local past = now - st.u_began_s
    if past >= $retry_budget.KEEP_S then
        st.u_came_before = past < 2 * $retry_budget.KEEP_S and st.u_came or 0
        st.u_came, st.u_began_s = 0, now
    end
    st.u_came = st.u_came + ratio
    P.budget_grown(st, now, per_s)
    st.u_tokens = math.min(st.u_tokens + ratio, P.budget_most(st, now, per_s))
end

function P.budget_owe(st, now, per_s)
    P.budget_grown(st, now, per_s)
    if st.u_tokens >= 1 - 1e-9 then
        st.u_tokens = st.u_tokens - 1
        return 0
    end
    if per_s <= 0 then return $retry_budget.KEEP_S end
    st.u_tokens = math.max(st.u_tokens - 1, -$retry_budget.OWED_S * per_s)
    return -st.u_tokens / per_s
end
