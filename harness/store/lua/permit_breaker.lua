-- The breaker before a call, when it isn't closed, step by step as in policy/breaker.
function P.breaker_tick(st, now)
    if st.b_mode == $breaker.OPEN and now >= st.b_until_s then
        st.b_mode, st.b_since_s, st.b_streak = $breaker.HALF_OPEN, now, 0
        for i = 1, $breaker.PROBES do st[$at.b_probes_s + i - 1] = 0 end
        return true
    end
    if st.b_mode == $breaker.HALF_OPEN then
        for i = 1, $breaker.PROBES do
            local at = $at.b_probes_s + i - 1
            if st[at] > 0 and now - st[at] >= $breaker.LEASE_S then st[at] = 0 end
        end
    end
    return false
end

function P.breaker_wait(st, now)
    if st.b_mode == $breaker.OPEN then return math.max(st.b_until_s - now, 0.001) end
    if st.b_mode == $breaker.HALF_OPEN then
        local least = st.b_probes_s
        for i = 2, $breaker.PROBES do least = math.min(least, st[$at.b_probes_s + i - 1]) end
        if least > 0 then return math.max(least + $breaker.LEASE_S - now, 0.001) end
    end
    return 0
end

function P.breaker_sent(st, now)
    if st.b_mode ~= $breaker.HALF_OPEN then return end
    for i = 1, $breaker.PROBES do
        local at = $at.b_probes_s + i - 1
        if st[at] == 0 then
            st[at] = now
            return
        end
    end
end
