-- Tell how resources stand; a limit whose step is due takes it, so that time passes also where nobody asks.
-- KEYS: the resources. ARGV: 1 time ('': the server's), then a config for each resource.
-- TTL: as permit_core. Returns: a list for each resource: time, limit, proven, ceiling, in flight, waiting, waiting P0,
-- asked, mode, blocked until, breaker, breaker until, wait for the rate in s.
function P.proven(st, cfg)
    if cfg.limiter == $how.fixed then return cfg.capacity end
    if cfg.limiter ~= $how.csl then return math.floor(st.limit) end
    return st.proven >= 1 and math.floor(st.proven) or cfg.proven
end

function P.rate_wait(st, cfg, now)
    local longest = math.max(0, st.stop_s - now)
    if cfg.rpm > 0 then longest = math.max(longest, (P.bucket_wait(st, $at.r_tat_s, cfg.rpm, now, 1))) end
    if cfg.tpm > 0 then longest = math.max(longest, (P.bucket_wait(st, $at.t_tat_s, cfg.tpm, now, 1))) end
    return longest
end

function P.blocked_until(st, cfg, now)
    if now < st.blocked_s then return st.blocked_s end
    return P.pause_left(st, cfg, now) > $csl.CANARY_MOST_S and st.pause_s or 0
end

local now, answer = P.clock(ARGV[1]), {}
for i = 1, #KEYS do
    local key, cfg = KEYS[i], {struct.unpack('$config_of.FORMAT', ARGV[1 + i])}
    local st, fresh = P.load(key, cfg, now, 0)
    if not fresh and now >= st.sweep_s then P.sweep(key, st, now) end
    local n, line = redis.call('ZCOUNT', key .. ':held', now, '+inf'), redis.call('ZCARD', key .. ':line')
    if not fresh then
        if P.step(key, st, cfg, now, n, line, -1) then P.wake(key, st, cfg, now) end
        P.save(key, st)
    end
    local shut, breaker = cfg.breaker > 0 and st.b_mode == $breaker.OPEN, 'closed'
    if cfg.breaker > 0 then breaker = ({'closed', 'open', 'half_open'})[st.b_mode + 1] end
    answer[i] = {
        P.exact(now), P.limit_now(st, cfg), P.proven(st, cfg), cfg.capacity, n, line,
        redis.call('ZCOUNT', key .. ':line', '-inf', '(' .. '$permits.P0_SCORE'),
        redis.call('ZCOUNT', key .. ':asked', now, '+inf'), P.mode_of(st, cfg), P.exact(P.blocked_until(st, cfg, now)),
        breaker, P.exact(shut and st.b_until_s or 0), P.exact(P.rate_wait(st, cfg, now)),
    }
end
return answer
