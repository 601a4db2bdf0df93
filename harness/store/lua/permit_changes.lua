-- What begins a resource's state, and what a change of its limit is, step by step as in policy/limits and policy/desk. Each
-- step of a limiter changes the state and returns the reason, '' when the limit stays.
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

-- How many there may be at once; only of csl `trim` isn't 0.
function P.limit_of(cfg, limit, trim)
    if cfg.limiter == $how.fixed or cfg.capacity == 0 then return cfg.capacity end
    limit = math.min(limit, cfg.capacity)
    if trim > 0 then limit = math.min(limit, trim) end
    return math.floor(limit)
end

function P.limit_now(st, cfg) return P.limit_of(cfg, st.limit, st.trim) end

function P.begun(cfg, now, known)
    local st = {}
    for i = 1, $state_of.SIZE do st[i] = 0 end
    st.waited = 1 -- nothing is known of who waits
    st.born_s, st.sweep_s, st.g_window_s, st.r_ratio, st.t_ratio = now, now, now, 1, 1
    P.limit_begin(st, cfg, now)
    if known > 0 or cfg.proven > 0 then st.door_s = now + $permits.DOOR_S end
    return st
end

function P.limit_clamp(st, cfg)
    local limit = P.bounded(cfg, st.limit)
    if limit == st.limit then return '' end
    st.limit, st.top_s = limit, 0
    if st.proven > limit then st.proven = limit end
    return 'bounds'
end

function P.exact(number) return string.format('%.17g', number) end

function P.mode_of(st, cfg)
    if cfg.limiter ~= $how.csl then return ({'fixed', 'csl', 'aimd', 'gradient'})[cfg.limiter + 1] end
    return ({'ramp', 'hold', 'drain'})[st.mode + 1]
end

function P.note(key, now, old, new, reason, mode)
    redis.call('XADD', '$permits.PREFIX' .. 'changes', 'MAXLEN', '~', $permits.CHANGES_MOST, '*',
        'r', string.sub(key, #'$permits.PREFIX' + 1), 't', P.exact(now), 'o', old, 'n', new, 'why', reason, 'm', mode)
end

-- Note a change since the limit was `limit`, and `trim` what the latency guard allows, if there is one. Returns whether more
-- may go than before.
function P.changed(key, st, cfg, now, limit, trim, reason)
    local before, after = P.limit_of(cfg, limit, trim), P.limit_now(st, cfg)
    if after == before then return false end
    P.note(key, now, before, after, reason == '' and 'bounds' or reason, P.mode_of(st, cfg))
    return after > before
end

-- Bring a limit into bounds that have moved. Returns whether more may go than before.
function P.clamped(key, st, cfg, now)
    local limit = st.limit
    return P.changed(key, st, cfg, now, limit, st.trim, P.limit_clamp(st, cfg))
end
