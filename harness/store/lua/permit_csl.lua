-- What the csl limiter's ticks and reports share, step by step as in policy/limits/csl.
function P.csl_noisy(st, now)
    local past = now - st.drains_s
    if past >= 2 * $csl.NOISY_S then return false end
    if past >= $csl.NOISY_S then return st.drains * (2 - past / $csl.NOISY_S) > $csl.NOISY_DRAINS end
    return st.drains + st.drains_before * (1 - past / $csl.NOISY_S) > $csl.NOISY_DRAINS
end

function P.csl_hold(st, now) st.mode, st.top_s, st.probe_s = $state.HOLD, 0, now end

-- What is asked before a call, line by line as in policy/limits and policy/desk.
function P.csl_accept_s(st)
    return math.min($csl.ACCEPT_MOST_S, math.max($csl.ACCEPT_S, $csl.ACCEPT_RATIO * st.refusal_s))
end

function P.csl_accepted(st, cfg, now)
    local before = st.limit
    st.limit = P.bounded(cfg, st.canary_n + 1)
    st.proven = st.limit
    st.hi, st.hi_s = st.n0, now
    st.mode, st.canary_s, st.top_s, st.refused = $state.RAMP, 0, 0, 0
    st.cut_s = now
    return st.limit ~= before and 'canary' or ''
end
