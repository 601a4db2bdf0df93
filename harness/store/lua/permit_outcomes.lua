-- What a call's end does to a limiter, step by step as in policy/limits.
function P.csl_found(st, cfg, limit)
    local before = st.limit
    st.limit = P.bounded(cfg, limit)
    st.proven = st.limit
    return st.limit ~= before
end

function P.csl_is_canary(st, sent_s)
    return st.mode == $state.DRAIN and st.canary_s > 0 and sent_s >= st.canary_s - $csl.SAME_S
end

function P.limit_ended(st, cfg, now, timed_out)
    if cfg.limiter ~= $how.csl then return '' end
    st.calls = st.calls + 1
    if timed_out then st.timeouts = st.timeouts + 1 end
    if now - st.window_s < $csl.WINDOW_S then return '' end
    local many = st.calls >= $csl.TIMEOUT_CALLS and st.timeouts > $csl.TIMEOUT_RATIO * st.calls
    st.window_s, st.calls, st.timeouts = now, 0, 0
    if not many then st.steady = 0 end
    if not many or st.mode == $state.DRAIN then return '' end
    local known = math.min(st.proven, st.limit)
    if known == 0 then known = st.limit end
    if st.steady == 0 then st.steady = known end
    local found = P.csl_found(st, cfg, math.floor(math.max($csl.TIMEOUT_CUT * known, $csl.TIMEOUT_FLOOR * st.steady)))
    P.csl_hold(st, now)
    st.probe_s = now + $csl.WINDOW_S - $csl.PROBE_LEAST_S
    return found and 'timeouts' or ''
end

function P.limit_succeeded(st, cfg, now, sent_s, latency_s)
    if cfg.limiter == $how.csl then
        st.tokens = math.min($csl.TOKENS_MOST, st.tokens + $csl.EPSILON)
        local reason = P.limit_ended(st, cfg, now, false)
        if P.csl_is_canary(st, sent_s) then return P.csl_accepted(st, cfg, now) end
        return reason
    end
    if cfg.limiter ~= $how.fixed then st.calls = st.calls + 1 end
    if cfg.limiter == $how.gradient then st.sum_s = st.sum_s + latency_s end
    return ''
end
