-- What is asked before a call, line by line as in policy/limits and policy/desk.
function P.csl_accept_s(st)
    return math.min($csl.ACCEPT_MOST_S, math.max($csl.ACCEPT_S, $csl.ACCEPT_RATIO * st.refusal_s))
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

function P.limit_sent(st, cfg, now, n)
    if cfg.limiter ~= $how.csl then return end
    if st.mode == $state.DRAIN then
        st.canary_s, st.canary_n = now, n
    elseif st.top_s == 0 and n + 1 >= st.limit then
        st.top_s = now
    end
end

-- Every SWEEP_S: take out who is gone. Permits that have expired don't count anyway.
function P.sweep(key, st, now)
    st.sweep_s = now + $permits.SWEEP_S
    redis.call('ZREMRANGEBYSCORE', key .. ':held', '-inf', now)
    redis.call('ZREMRANGEBYSCORE', key .. ':asked', '-inf', now)
    local gone = redis.call('ZRANGEBYSCORE', key .. ':seen', '-inf', now)
    for i = 1, #gone do
        redis.call('ZREM', key .. ':line', gone[i])
        redis.call('ZREM', key .. ':seen', gone[i])
    end
    for _, part in ipairs({':held', ':asked', ':line', ':seen', ':latency'}) do
        redis.call('EXPIRE', key .. part, $permits.STATE_S)
    end
end

-- Let time pass before anything is asked. `priority` -1: nobody asks. Returns whether more may go than before.
function P.step(key, st, cfg, now, n, waiting, priority)
    local before, more = P.limit_now(st, cfg), false
    more = P.changed(key, st, cfg, now, before, P.limit_clamp(st, cfg))
    if priority == 0 then st.p0_s = now end
    if cfg.breaker > 0 and P.breaker_tick(st, now) then
        P.note(key, now, 0, P.limit_now(st, cfg), '$desk.PROBING', P.mode_of(st, cfg))
        more = true
    end
    if priority < 0 and cfg.limiter == $how.csl then -- who only looks has time for it
        before = P.limit_now(st, cfg)
        more = P.changed(key, st, cfg, now, before, P.guard_step(key, st, cfg, now)) or more
    end
    before = P.limit_now(st, cfg)
    return P.changed(key, st, cfg, now, before, P.limit_tick(st, cfg, now, n, waiting)) or more
end

function P.charge_of(st, cfg) return cfg.tpm > 0 and cfg.tokens * st.t_ratio or 0 end

function P.rated(st, cfg, now, ahead)
    if now < st.stop_s then return 'requests', st.stop_s - now end
    local requests_s, tokens_s = 0, 0
    if cfg.rpm > 0 then requests_s = P.bucket_wait(st, $at.r_tat_s, cfg.rpm, now, 1) end
    if cfg.tpm > 0 then tokens_s = P.bucket_wait(st, $at.t_tat_s, cfg.tpm, now, P.charge_of(st, cfg)) end
    if tokens_s > requests_s then return 'tokens', tokens_s end
    if requests_s > 0 then return 'requests', requests_s end
    if ahead > 0 and now < st.head_s + $desk.HEAD_S then
        return st.head == 1 and 'tokens' or 'requests', math.max(st.head_s - now, 0)
    end
    return nil, 0
end

-- For so long a drain still sends nothing at all.
function P.pause_left(st, cfg, now)
    if cfg.limiter == $how.fixed or st.mode ~= $state.DRAIN or st.canary_s > 0 then return 0 end
    return math.max(0, st.pause_s - now)
end

-- What refuses a call now, and for how long at least (0: nobody knows); nil when nothing does.
function P.binding(st, cfg, now, n, ahead, priority, mine)
    if cfg.breaker > 0 then
        local shut_s = P.breaker_wait(st, now)
        if shut_s > 0 then return 'breaker', st.b_mode == $breaker.OPEN and shut_s or 0 end
    end
    if cfg.capacity == 0 then return 'blocked', 0 end
    if now < st.blocked_s then return 'blocked', st.blocked_s - now end
    if cfg.cap >= 0 and mine >= cfg.cap then return 'tenant', 0 end
    if P.limit_seen(st, cfg, now, priority) - n <= ahead then
        return 'concurrency', P.pause_left(st, cfg, now)
    end
    if now < st.door_s then
        local limit = P.limit_now(st, cfg)
        if st.door >= 1 + math.floor(limit * (now - st.born_s) / $permits.DOOR_S) then
            return 'redis', math.max($permits.DOOR_S * st.door / limit - (now - st.born_s), 0.001)
        end
    end
    return P.rated(st, cfg, now, ahead)
end

-- Take one call in. Returns what is remembered of it: key, calls in flight before, when it was sent, estimate and charge of
-- tokens, and the tenant where it has a cap.
function P.let_in(key, st, cfg, now, n, first)
    P.limit_sent(st, cfg, now, n)
    if cfg.breaker > 0 then P.breaker_sent(st, now) end
    if cfg.rpm > 0 then P.bucket_take(st, $at.r_tat_s, cfg.rpm, now, 1) end
    local charged = P.charge_of(st, cfg)
    if cfg.tpm > 0 then P.bucket_take(st, $at.t_tat_s, cfg.tpm, now, charged) end
    if first then P.budget_first(st, now, cfg.ratio, cfg.per_s) end
    st.door = st.door + 1
    return {key, n, now, cfg.tokens, charged}
end

