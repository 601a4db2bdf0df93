-- The limiters, step by step as in policy/limits. Each step changes the state and returns the reason, '' when the limit stays.
function P.bounded(cfg, limit) return math.min(math.max(limit, cfg.floor, 1), cfg.ceiling) end

-- Begin; what isn't set here is 0 already.
function P.limit_begin(st, cfg, now)
    local first = math.max($state.START_LEAST, math.floor(cfg.proven * $state.RESTART_RATIO))
    if cfg.start > 0 and cfg.proven == 0 then first = cfg.start end
    st.limit, st.mode, st.first = P.bounded(cfg, first), $state.RAMP, 1
    st.window_s, st.drains_s, st.probe_s = now, now, now
    if cfg.proven > 0 then st.first, st.hi, st.hi_s = 0, P.bounded(cfg, cfg.proven), now end
    if cfg.limiter == $how.fixed then st.limit = cfg.ceiling end
end

function P.limit_clamp(st, cfg)
    local limit = P.bounded(cfg, st.limit)
    if limit == st.limit then return '' end
    st.limit, st.top_s = limit, 0
    if st.proven > limit then st.proven = limit end
    return 'bounds'
end

function P.csl_noisy(st, now)
    local past = now - st.drains_s
    if past >= 2 * $csl.NOISY_S then return false end
    if past >= $csl.NOISY_S then return st.drains * (2 - past / $csl.NOISY_S) > $csl.NOISY_DRAINS end
    return st.drains + st.drains_before * (1 - past / $csl.NOISY_S) > $csl.NOISY_DRAINS
end

function P.csl_hold(st, now) st.mode, st.top_s, st.probe_s = $state.HOLD, 0, now end

function P.csl_accepted(st, cfg, now)
    local before = st.limit
    st.limit = P.bounded(cfg, st.canary_n + 1)
    st.proven = st.limit
    st.hi, st.hi_s = st.n0, now
    st.mode, st.canary_s, st.top_s, st.refused = $state.RAMP, 0, 0, 0
    st.cut_s = now
    return st.limit ~= before and 'canary' or ''
end

-- How many there may be in flight for a call of this priority.
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
            if priority > 0 and st.p0_s > 0 and now - st.p0_s <= $state.P0_SEEN_S then
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

-- A bucket begins at `o`: tat_s, typical, ratio, limit.
-- Buckets and the retry budget, step by step as in policy/bucket and policy/retry_budget; `b` is one's state.
function P.bucket_terms(st, o, per_minute)
    local quota = per_minute
    if st[o + 3] > 0 then quota = math.min(per_minute, st[o + 3]) end
    local share = $bucket.BURST_CALLS * st[o + 1] / quota
    local burst = $bucket.BURST_MOST_S
    if share < $bucket.BURST_MOST_S / (60 + $bucket.BURST_MOST_S) then
        burst = math.min($bucket.BURST_MOST_S, math.max($bucket.BURST_LEAST_S, 60 * share / (1 - share)))
    end
    return burst, math.max((60 + burst) / quota, 60 / ($bucket.RATE_MOST * quota))
end
