-- How many there may be in flight for a call of this priority, step by step as in policy/limits.
function P.limit_seen(st, cfg, now, priority)
    if now < st.blocked_s then return 0 end
    if cfg.limiter == $how.csl then
        if st.mode == $state.DRAIN then
            if st.canary_s > 0 or now < st.pause_s then return 0 end
            if st.n0 <= 1 and now - math.max(st.pause_s, st.cut_s) >= $csl.BESIDE_S then return 2 end
            return math.max(1, math.floor($csl.DRAIN_RATIO * st.n0))
        end
        local limit = st.limit
        if st.mode == $state.HOLD then
            if P.csl_noisy(st, now) then limit = math.max(1, math.floor($csl.NOISY_RATIO * limit)) end
            local urgent = st.p0_s > 0 and now - st.p0_s <= $state.P0_SEEN_S
            if priority > 0 and urgent and st.limit >= $state.RESERVE_FROM then
                limit = math.max(1, limit - cfg.reserve)
            end
        end
        if st.trim > 0 then limit = math.min(limit, st.trim) end
        return math.floor(math.min(limit, cfg.ceiling))
    end
    local limit = cfg.limiter == $how.fixed and cfg.ceiling or math.floor(st.limit)
    if priority > 0 then limit = limit - cfg.reserve end
    return math.max(1, limit)
end
