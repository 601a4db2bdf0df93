-- What time does at one resource, and a call that is sent, step by step as in policy/limits and policy/desk.
-- Let time pass before anything is asked. `priority` -1: nobody asks. Returns whether more may go than before.
function P.step(key, st, cfg, now, n, waiting, priority)
    local more = false
    if st.limit > cfg.ceiling or st.limit < cfg.floor or st.limit < 1 then more = P.clamped(key, st, cfg, now) end
    if priority == 0 then st.p0_s = now end
    if cfg.breaker > 0 and st.b_mode ~= $breaker.CLOSED and P.breaker_tick(st, now) then
        P.note(key, now, 0, P.limit_now(st, cfg), '$desk.PROBING', P.mode_of(st, cfg))
        more = true
    end
    if cfg.limiter == $how.fixed and st.limit == cfg.ceiling then return more end
    if priority < 0 and cfg.limiter == $how.csl then -- who only looks has time for it
        local limit, trim = st.limit, st.trim
        more = P.changed(key, st, cfg, now, limit, trim, P.guard_step(key, st, cfg, now)) or more
    end
    local limit = st.limit
    local reason = P.limit_tick(st, cfg, now, n, waiting)
    return reason ~= '' and P.changed(key, st, cfg, now, limit, st.trim, reason) or more
end

function P.csl_ramp(st, cfg, now)
    if st.top_s == 0 or now - st.top_s < P.csl_accept_s(st) then return '' end
    st.proven = st.limit
    local fresh = st.hi > 0 and now - st.hi_s < $csl.HI_S and st.limit <= st.hi
    if (fresh and st.limit == st.hi) or st.limit >= cfg.ceiling or st.trim > 0 then
        P.csl_hold(st, now)
        return ''
    end
    local ratio = st.first > 0 and $csl.FIRST_RATIO or $csl.RAMP_RATIO
    local limit = st.limit + math.max(1, math.floor(ratio * st.limit))
    if fresh then limit = math.min(limit, st.hi) end
    st.limit, st.top_s = P.bounded(cfg, limit), 0
    return 'grow'
end

function P.csl_probe(st, cfg, now, n, waiting)
    local since_s = now - st.probe_s
    local paid = st.tokens >= 1 and since_s >= $csl.PROBE_LEAST_S
    if not (paid or since_s >= $csl.PROBE_MOST_S) or waiting == 0 or st.trim > 0 or st.limit >= cfg.ceiling then return '' end
    if n + 1 < P.limit_seen(st, cfg, now, 1) then return '' end
    st.limit = st.limit + 1
    st.mode, st.top_s, st.probe_s = $state.RAMP, 0, now
    return 'probe'
end

function P.gradient_tick(st, cfg, now, n)
    if now - st.window_s < $gradient.SAMPLE_S then return '' end
    st.window_s = now
    if st.calls == 0 then return '' end
    local short_s = st.sum_s / st.calls
    st.calls, st.sum_s = 0, 0
    st.mean_s = st.mean_s + (short_s - st.mean_s) * (st.mean_s > 0 and $gradient.LONG_WEIGHT or 1)
    if short_s <= 0 or n < st.limit / 2 then return '' end
    if st.mean_s / short_s > 2 then st.mean_s = st.mean_s * $gradient.LONG_DECAY end
    local ratio = math.max(0.5, math.min(1, $gradient.TOLERANCE * st.mean_s / short_s))
    local before = st.limit
    local wanted = st.limit * ratio + $gradient.QUEUE
    st.limit = P.bounded(cfg, st.limit * (1 - $gradient.SMOOTHING) + wanted * $gradient.SMOOTHING)
    return st.limit ~= before and 'gradient' or ''
end

function P.limit_tick(st, cfg, now, n, waiting)
    if cfg.limiter == $how.csl then
        if st.mode == $state.DRAIN then
            if st.canary_s > 0 and now - st.canary_s >= P.csl_accept_s(st) then return P.csl_accepted(st, cfg, now) end
            return ''
        end
        if st.mode == $state.RAMP then return P.csl_ramp(st, cfg, now) end
        return P.csl_probe(st, cfg, now, n, waiting)
    end
    if cfg.limiter == $how.fixed then
        if st.limit == cfg.ceiling then return '' end
        st.limit = cfg.ceiling
        return 'bounds'
    end
    if cfg.limiter == $how.gradient then return P.gradient_tick(st, cfg, now, n) end
    if now - st.window_s < $aimd.SAMPLE_S then return '' end
    st.window_s = now
    if 2 * n < st.limit or st.limit >= cfg.ceiling then return '' end
    st.limit = P.bounded(cfg, st.limit + 1)
    return 'additive'
end

function P.csl_sent(st, now, n)
    if st.mode == $state.DRAIN then
        st.canary_s, st.canary_n = now, n
    elseif st.top_s == 0 and n + 1 >= st.limit then
        st.top_s = now
    end
end

-- For so long a drain still sends nothing at all.
function P.pause_left(st, cfg, now)
    if cfg.limiter == $how.fixed or st.mode ~= $state.DRAIN or st.canary_s > 0 then return 0 end
    return math.max(0, st.pause_s - now)
end
