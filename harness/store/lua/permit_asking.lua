-- What is asked at one resource before a call, line by line as in policy/desk.
-- What refuses a call now, and for how long at least (0: nobody knows); nil when nothing does.
function P.binding(st, cfg, now, n, ahead, priority, mine)
    if cfg.breaker > 0 and st.b_mode ~= $breaker.CLOSED then
        local shut_s = P.breaker_wait(st, now)
        if shut_s > 0 then return 'breaker', st.b_mode == $breaker.OPEN and shut_s or 0 end
    end
    if cfg.capacity == 0 then return 'blocked', 0 end
    if now < st.blocked_s then return 'blocked', st.blocked_s - now end
    if cfg.cap >= 0 and mine >= cfg.cap then return 'tenant', 0 end
    if P.limit_seen(st, cfg, now, priority) - n <= ahead then return 'concurrency', P.pause_left(st, cfg, now) end
    if now < st.door_s then
        local limit = P.limit_now(st, cfg)
        if st.door >= 1 + math.floor(limit * (now - st.born_s) / $permits.DOOR_S) then
            return 'redis', math.max($permits.DOOR_S * st.door / limit - (now - st.born_s), 0.001)
        end
    end
    if now < st.stop_s then return 'requests', st.stop_s - now end
    local requests_s, tokens_s = 0, 0
    if cfg.rpm > 0 then requests_s, cfg.rpm_unit_s = P.bucket_wait(st, $at.r_tat_s, cfg.rpm, now, 1) end
    if cfg.tpm > 0 then
        cfg.charged = cfg.tokens * st.t_ratio
        tokens_s, cfg.tpm_unit_s = P.bucket_wait(st, $at.t_tat_s, cfg.tpm, now, cfg.charged)
    end
    if tokens_s > requests_s then return 'tokens', tokens_s end
    if requests_s > 0 then return 'requests', requests_s end
    if ahead > 0 and now < st.head_s + $desk.HEAD_S then
        return st.head == 1 and 'tokens' or 'requests', math.max(st.head_s - now, 0)
    end
    return nil, 0
end

-- Take one call in, after `binding` said nil. Returns what is remembered of it: key, calls in flight before, when it was sent,
-- estimate and charge of tokens, and the tenant where it has a cap.
function P.let_in(key, st, cfg, now, n, first)
    if cfg.limiter == $how.csl then P.csl_sent(st, now, n) end
    if cfg.breaker > 0 and st.b_mode ~= $breaker.CLOSED then P.breaker_sent(st, now) end
    if cfg.rpm > 0 then P.bucket_take(st, $at.r_tat_s, now, 1, cfg.rpm_unit_s) end
    if cfg.tpm > 0 then P.bucket_take(st, $at.t_tat_s, now, cfg.charged, cfg.tpm_unit_s) end
    if first then P.budget_first(st, now, cfg.ratio, cfg.per_s) end
    st.door = st.door + 1
    return {key, n, now, cfg.tokens, cfg.tpm > 0 and cfg.charged or 0}
end
