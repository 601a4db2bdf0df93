-- What a call's end tells its resources, line by line as in policy/desk and policy/breaker.
function P.broken(key, st, cfg, now, sent_s, counts, failed, jitter)
    if cfg.breaker == 0 or st.b_mode == $breaker.OPEN then return end
    if st.b_mode == $breaker.HALF_OPEN then return P.breaker_probed(key, st, cfg, now, sent_s, counts, failed, jitter) end
    if not counts or sent_s < st.b_since_s - $breaker.SAME_S then return end
    local number = math.floor(now / $breaker.BUCKET_S)
    if number > st.w_number then P.breaker_turn(key, st, number) end
    st.w_calls = st.w_calls + 1
    if failed then st.w_failures = st.w_failures + 1 end
    st.b_streak = failed and st.b_streak + 1 or 0
    local calls = st.w_calls_before + st.w_calls
    if calls >= $breaker.CALLS_LEAST then
        local many = st.w_failures_before + st.w_failures >= $breaker.FAILURE_RATIO * calls
        if not many and st.b_streak < $breaker.STREAK_BUSY then return end
    elseif st.b_streak < $breaker.STREAK then
        return
    end
    if st.b_since_s > 0 and now - st.b_since_s >= $breaker.FORGET_S then st.b_k = 0 end
    P.breaker_open(key, st, cfg, now, jitter)
end

-- How a call ended, as permit_finish got it.
function P.told(key, st, cfg, now, fact, rep)
    local success, failed, limit, reason = rep.outcome == $outcome.success, rep.failure == 1, nil, ''
    st.door = st.door - 1
    if st.limit > cfg.ceiling or st.limit < cfg.floor or st.limit < 1 then P.clamped(key, st, cfg, now) end
    limit = st.limit
    if rep.timed_out == 0 and not success and rep.outcome ~= $outcome.ignore and rep.rate == 0 then
        local n = redis.call('ZCOUNT', key .. ':held', now, '+inf')
        reason = P.limit_dropped(st, cfg, now, fact[2], fact[3], now - fact[3], n, rep.retry_after_s, rep.overload == 1)
    elseif cfg.limiter ~= $how.fixed then
        if success and rep.timed_out == 0 then
            if cfg.limiter == $how.csl and rep.bin >= 0 then
                redis.call('HINCRBY', key .. ':latency', rep.bin, 1)
                st.g_calls = st.g_calls + 1
            end
            reason = P.limit_succeeded(st, cfg, now, fact[3], rep.latency_s)
        else
            reason = P.limit_ended(st, cfg, now, rep.timed_out == 1)
        end
    end
    if reason ~= '' then P.changed(key, st, cfg, now, limit, st.trim, reason) end
    if rep.rate == 1 then P.stopped(st, cfg, now, rep) end
    if rep.headers == 1 then
        if cfg.rpm > 0 then P.bucket_tighten(st, $at.r_tat_s, cfg.rpm, now, rep.requests, rep.requests_left) end
        if cfg.tpm > 0 then P.bucket_tighten(st, $at.t_tat_s, cfg.tpm, now, rep.tokens, rep.tokens_left) end
    end
    P.broken(key, st, cfg, now, fact[3], success or failed, failed, rep.jitter)
end
