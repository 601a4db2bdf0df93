-- The end of a call that says nothing of this resource, line by line as in policy/desk.
-- A call is over whose outcome another resource brought about, or nobody knows.
function P.aside(key, st, cfg, now, fact, succeeded)
    st.door = st.door - 1
    if st.limit > cfg.ceiling or st.limit < cfg.floor or st.limit < 1 then P.clamped(key, st, cfg, now) end
    if cfg.limiter ~= $how.fixed then
        local limit, reason = st.limit, nil
        if succeeded then
            reason = P.limit_succeeded(st, cfg, now, fact[3], 0)
        else
            reason = P.limit_ended(st, cfg, now, false)
        end
        if reason ~= '' then P.changed(key, st, cfg, now, limit, st.trim, reason) end
    end
    P.broken(key, st, cfg, now, fact[3], succeeded, false, 0)
end

-- A permit ends without an outcome. `actual` tokens: -1 as reserved, 0 nothing was sent.
function P.free(key, cfg, now, member, fact, actual)
    redis.call('ZREM', key .. ':held', member)
    if fact[6] then redis.call('ZREM', key .. ':tenant:' .. fact[6], member) end
    local st = P.load(key, cfg, now, 0)
    if cfg.tpm > 0 and actual >= 0 then P.bucket_settle(st, $at.t_tat_s, cfg.tpm, now, fact[5], 0, actual) end
    P.aside(key, st, cfg, now, fact, false)
    P.save(key, st)
    if st.waited > 0 then P.wake(key, st, cfg, now) end
end
