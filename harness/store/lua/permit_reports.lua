-- What a call's end tells its resources, line by line as in policy/desk and policy/breaker.
function P.settle(st, cfg, now, fact, actual, learn)
    if cfg.tpm > 0 and actual >= 0 then
        P.bucket_settle(st, $at.t_tat_s, cfg.tpm, now, fact[5], learn and fact[4] or 0, actual)
    end
end

-- The window: the number of the bucket that counts now, then calls, failures and slow calls of BUCKETS buckets each.
function P.window(key, now)
    local raw, w = redis.call('GET', key .. ':window'), {}
    if raw then
        w = {struct.unpack('$window_of.FORMAT', raw)}
    else
        for i = 1, $window_of.SIZE do w[i] = 0 end
    end
    local number = math.floor(now / $breaker.BUCKET_S)
    for step = math.max(w[1] + 1, number - $breaker.BUCKETS + 1), number do
        local i = step % $breaker.BUCKETS + 2
        w[i], w[i + $breaker.BUCKETS], w[i + 2 * $breaker.BUCKETS] = 0, 0, 0
    end
    w[1] = math.max(w[1], number)
    return w
end

function P.no_probes(st)
    for i = 1, $breaker.PROBES do st[$at.b_probes_s + i - 1] = 0 end
end

function P.breaker_open(key, st, now, jitter)
    local open_s = math.min($breaker.OPEN_MOST_S, $breaker.OPEN_S * 2 ^ math.min(st.b_k, 10))
    st.b_mode, st.b_since_s = $breaker.OPEN, now
    st.b_until_s = now + open_s * (1 - $breaker.JITTER + 2 * $breaker.JITTER * jitter)
    st.b_streak = 0
    P.no_probes(st)
    redis.call('DEL', key .. ':window')
end

function P.breaker_probed(key, st, now, sent_s, counts, failed, jitter)
    for i = 1, $breaker.PROBES do
        local at = $at.b_probes_s + i - 1
        if st[at] > 0 and math.abs(st[at] - sent_s) < $breaker.SAME_S then
            st[at] = 0
            break
        end
    end
    if not counts or sent_s < st.b_since_s - $breaker.SAME_S then return '' end
    if failed then
        st.b_k = st.b_k + 1
        P.breaker_open(key, st, now, jitter)
        return 'opened'
    end
    st.b_streak = st.b_streak + 1
    if st.b_streak < $breaker.PROBES then return '' end
    st.b_mode, st.b_since_s, st.b_streak = $breaker.CLOSED, now, 0
    P.no_probes(st)
    redis.call('DEL', key .. ':window')
    return 'closed'
end

function P.breaker_reported(key, st, now, sent_s, counts, failed, slow, jitter)
    if st.b_mode == $breaker.OPEN then return '' end
    if st.b_mode == $breaker.HALF_OPEN then return P.breaker_probed(key, st, now, sent_s, counts, failed, jitter) end
    if not counts or sent_s < st.b_since_s - $breaker.SAME_S then return '' end
    local w = P.window(key, now)
    local i = w[1] % $breaker.BUCKETS + 2
    w[i] = w[i] + 1
    if failed then w[i + $breaker.BUCKETS] = w[i + $breaker.BUCKETS] + 1 end
    if slow then w[i + 2 * $breaker.BUCKETS] = w[i + 2 * $breaker.BUCKETS] + 1 end
    redis.call('SET', key .. ':window', struct.pack('$window_of.FORMAT', unpack(w, 1, $window_of.SIZE)),
        'EX', 2 * $breaker.WINDOW_S)
    st.b_streak = failed and st.b_streak + 1 or 0
    local calls, failures, slows = 0, 0, 0
    for at = 2, $breaker.BUCKETS + 1 do
        calls, failures = calls + w[at], failures + w[at + $breaker.BUCKETS]
        slows = slows + w[at + 2 * $breaker.BUCKETS]
    end
    if calls >= $breaker.CALLS_LEAST then
        local many = failures >= $breaker.FAILURE_RATIO * calls or slows >= $breaker.SLOW_RATIO * calls
        if not many and st.b_streak < $breaker.STREAK_BUSY then return '' end
    elseif st.b_streak < $breaker.STREAK then
        return ''
    end
    if st.b_since_s > 0 and now - st.b_since_s >= $breaker.FORGET_S then st.b_k = 0 end
    P.breaker_open(key, st, now, jitter)
    return 'opened'
end

function P.broken(key, st, cfg, now, fact, counts, failed, jitter)
    if cfg.breaker == 0 then return end
    local change = P.breaker_reported(key, st, now, fact[3], counts, failed, false, jitter)
    if change == 'opened' then
        P.note(key, now, P.limit_now(st, cfg), 0, '$desk.OPENED', P.mode_of(st, cfg))
    elseif change == 'closed' then
        P.note(key, now, 0, P.limit_now(st, cfg), '$desk.CLOSED', P.mode_of(st, cfg))
        if cfg.limiter ~= $how.fixed then
            local before = P.limit_now(st, cfg)
            P.changed(key, st, cfg, now, before, P.limit_restart(st, cfg, now))
        end
    end
end

-- A call is over whose outcome another resource brought about, or nobody knows.
function P.aside(key, st, cfg, now, fact, succeeded)
    local before = P.limit_now(st, cfg)
    st.door = st.door - 1
    P.changed(key, st, cfg, now, before, P.limit_clamp(st, cfg))
    before = P.limit_now(st, cfg)
    local reason
    if succeeded then
        reason = P.limit_succeeded(st, cfg, now, fact[3], 0)
    else
        reason = P.limit_ended(st, cfg, now, false)
    end
    P.changed(key, st, cfg, now, before, reason)
    P.broken(key, st, cfg, now, fact, succeeded, false, 0)
end

-- A permit ends without an outcome. `actual` tokens: -1 as reserved, 0 nothing was sent.
function P.free(key, cfg, now, member, fact, actual)
    redis.call('ZREM', key .. ':held', member)
    if fact[6] then redis.call('ZREM', key .. ':tenant:' .. fact[6], member) end
    local st = P.load(key, cfg, now, 0)
    P.settle(st, cfg, now, fact, actual, false)
    P.aside(key, st, cfg, now, fact, false)
    P.save(key, st)
    P.wake(key, st, cfg, now, P.in_flight(key, now))
end

-- A refusal for rate: of what the headers say is used up; of both when they don't say.
function P.stopped(st, cfg, now, rep)
    local stop_s = math.max(P.believed(rep.retry_after_s), $desk.RATE_LEAST_S)
    local requests, tokens = rep.requests_left == 0, rep.tokens_left == 0
    local by_requests, by_tokens = cfg.rpm > 0, cfg.tpm > 0
    if not by_requests and not by_tokens then st.stop_s = math.max(st.stop_s, now + stop_s) end
    if by_requests and (requests or not tokens or not by_tokens) then P.bucket_stop(st, $at.r_tat_s, cfg.rpm, now, stop_s) end
    if by_tokens and (tokens or not requests or not by_requests) then P.bucket_stop(st, $at.t_tat_s, cfg.tpm, now, stop_s) end
end

-- How a call ended, as permit_finish got it.
function P.told(key, st, cfg, now, n, fact, rep)
    local before, reason = P.limit_now(st, cfg), nil
    st.door = st.door - 1
    P.changed(key, st, cfg, now, before, P.limit_clamp(st, cfg))
    before = P.limit_now(st, cfg)
    if rep.timed_out == 1 then
        reason = P.limit_ended(st, cfg, now, true)
    elseif rep.outcome == $outcome.success then
        if cfg.limiter == $how.csl then P.guard_noted(key, st, rep.bin) end
        reason = P.limit_succeeded(st, cfg, now, fact[3], rep.latency_s)
    elseif rep.outcome == $outcome.ignore or rep.rate == 1 then
        reason = P.limit_ended(st, cfg, now, false)
    else
        reason = P.limit_dropped(st, cfg, now, fact[2], fact[3], now - fact[3], n, rep.retry_after_s, rep.overload == 1)
    end
    P.changed(key, st, cfg, now, before, reason)
    if rep.rate == 1 then P.stopped(st, cfg, now, rep) end
    if rep.headers == 1 then
        if cfg.rpm > 0 then P.bucket_tighten(st, $at.r_tat_s, cfg.rpm, now, rep.requests, rep.requests_left) end
        if cfg.tpm > 0 then P.bucket_tighten(st, $at.t_tat_s, cfg.tpm, now, rep.tokens, rep.tokens_left) end
    end
    local failed = rep.failure == 1
    P.broken(key, st, cfg, now, fact, rep.outcome == $outcome.success or failed, failed, rep.jitter)
end

function P.guard_noted(key, st, bin)
    if bin < 0 then return end
    redis.call('HINCRBY', key .. ':latency', bin, 1)
    st.g_calls = st.g_calls + 1
end
