-- What the end of a call does to the limiter and the buckets, step by step as in policy/limits and policy/bucket.
function P.believed(retry_after_s) return math.min(math.max(retry_after_s, 0), $state.RETRY_AFTER_CAP_S) end

function P.limit_restart(st, cfg, now)
    local known = st.proven
    if known == 0 then known = st.limit end
    st.limit = P.bounded(cfg, math.floor(known * $state.RESTART_RATIO))
    st.mode, st.top_s, st.canary_s, st.pause_s, st.refused = $state.RAMP, 0, 0, 0, 0
    st.hi, st.hi_s, st.proven = 0, now, 0
    return 'restart'
end

function P.csl_found(st, cfg, limit)
    local before = st.limit
    st.limit = P.bounded(cfg, limit)
    st.proven = st.limit
    return st.limit ~= before
end

function P.block(st, now, pause_s)
    if pause_s > $state.BLOCK_S then st.blocked_s = math.max(st.blocked_s, now + pause_s) end
end

function P.csl_pause(st, now, pause_s)
    st.pause_s = math.max(st.pause_s, now + pause_s)
    P.block(st, now, pause_s)
end

function P.csl_is_canary(st, sent_s)
    return st.mode == $state.DRAIN and st.canary_s > 0 and sent_s >= st.canary_s - $csl.SAME_S
end

function P.limit_ended(st, cfg, now, timed_out)
    if cfg.limiter ~= $how.csl then return '' end
    st.calls = st.calls + 1
    if timed_out then st.timeouts = st.timeouts + 1 end
    if now - st.window_s < $csl.WINDOW_S then return '' end
    local many = st.calls >= $csl.TIMEOUT_CALLS and st.timeouts > $csl.TIMEOUT_RATIO * st.calls
    st.window_s, st.calls, st.timeouts = now, 0, 0
    if not many then st.steady = 0 end
    if not many or st.mode == $state.DRAIN then return '' end
    local known = math.min(st.proven, st.limit)
    if known == 0 then known = st.limit end
    if st.steady == 0 then st.steady = known end
    local found = P.csl_found(st, cfg, math.floor(math.max($csl.TIMEOUT_CUT * known, $csl.TIMEOUT_FLOOR * st.steady)))
    P.csl_hold(st, now)
    st.probe_s = now + $csl.WINDOW_S - $csl.PROBE_LEAST_S
    return found and 'timeouts' or ''
end

function P.limit_succeeded(st, cfg, now, sent_s, latency_s)
    if cfg.limiter == $how.csl then
        st.tokens = math.min($csl.TOKENS_MOST, st.tokens + $csl.EPSILON)
        local reason = P.limit_ended(st, cfg, now, false)
        if P.csl_is_canary(st, sent_s) then return P.csl_accepted(st, cfg, now) end
        return reason
    end
    if cfg.limiter ~= $how.fixed then st.calls = st.calls + 1 end
    if cfg.limiter == $how.gradient then st.sum_s = st.sum_s + latency_s end
    return ''
end

function P.csl_drained(st, cfg, now, n_send, sent_s, retry_after_s)
    local pause_s = P.believed(retry_after_s)
    if P.csl_is_canary(st, sent_s) then
        st.canary_s, st.n0 = 0, n_send
        if n_send == 0 then
            pause_s = math.max(pause_s, math.min($csl.CANARY_MOST_S, $csl.CANARY_FIRST_S * 2 ^ math.min(st.refused, 10)))
            st.refused = st.refused + 1
        else
            st.refused = 0
        end
    else
        st.n0 = math.min(st.n0, n_send)
    end
    P.csl_pause(st, now, pause_s)
    return P.csl_found(st, cfg, math.min(st.limit, math.floor($csl.DRAIN_RATIO * st.n0))) and 'drain' or ''
end

function P.csl_count_drain(st, now)
    local past = now - st.drains_s
    if past >= $csl.NOISY_S then
        st.drains_before = past < 2 * $csl.NOISY_S and st.drains or 0
        st.drains, st.drains_s = 0, now
    end
    st.drains = st.drains + 1
end

function P.csl_pay(st, cost) st.tokens = math.max(-$csl.TOKENS_MOST, st.tokens - cost) end

function P.limit_dropped(st, cfg, now, n_send, sent_s, latency_s, n, retry_after_s, overload)
    if cfg.limiter == $how.csl then
        local weight = latency_s > st.refusal_s and 1 or $csl.REFUSAL_WEIGHT
        st.refusal_s = st.refusal_s + weight * (latency_s - st.refusal_s)
        if st.mode == $state.DRAIN then
            P.csl_pay(st, $csl.FELL_COST)
            return P.csl_drained(st, cfg, now, n_send, sent_s, retry_after_s)
        end
        if sent_s < st.cut_s - $csl.SAME_S then
            P.csl_pay(st, 1)
            st.n0 = math.min(st.n0, n_send)
            return P.csl_found(st, cfg, math.min(st.limit, math.max(st.n0, n))) and 'sharpen' or ''
        end
        st.cut_s = now
        if n_send >= st.proven and not overload then
            P.csl_pay(st, 1)
            local changed = P.csl_found(st, cfg, math.min(st.limit, math.max(n_send, n)))
            st.n0 = n_send
            st.hi, st.hi_s, st.first = st.limit, now, 0
            P.csl_hold(st, now)
            return changed and 'edge' or ''
        end
        P.csl_pay(st, $csl.FELL_COST)
        st.mode, st.n0, st.canary_s, st.refused, st.first = $state.DRAIN, n, 0, 0, 0
        P.csl_count_drain(st, now)
        P.csl_pause(st, now, P.believed(retry_after_s))
        return P.csl_found(st, cfg, math.min(st.limit, math.floor($csl.DRAIN_RATIO * st.n0))) and 'drain' or ''
    end
    if cfg.limiter == $how.gradient then
        st.calls, st.sum_s = st.calls + 1, st.sum_s + latency_s
        return ''
    end
    P.block(st, now, P.believed(retry_after_s))
    if cfg.limiter == $how.fixed or (st.cut_s > 0 and now - st.cut_s < $aimd.SAMPLE_S) then return '' end
    local before = st.limit
    st.cut_s, st.window_s = now, now
    st.limit = P.bounded(cfg, math.floor($aimd.BACKOFF_RATIO * st.limit))
    return st.limit ~= before and 'backoff' or ''
end

function P.bucket_settle(st, o, per_minute, now, charged, estimate, actual)
    local burst, unit_s = P.bucket_terms(st, o, per_minute)
    st[o] = math.max(st[o] + (actual - charged) * unit_s, now - burst)
    if estimate > 0 then
        local found = math.min(math.max(actual / estimate, $bucket.RATIO_LEAST), $bucket.RATIO_MOST)
        st[o + 2] = st[o + 2] + (found - st[o + 2]) * $bucket.RATIO_WEIGHT
    end
end

-- `remaining` negative: not said.
function P.bucket_tighten(st, o, per_minute, now, limit, remaining)
    if limit > 0 then st[o + 3] = limit end
    if remaining < 0 then return end
    local burst, unit_s = P.bucket_terms(st, o, per_minute)
    st[o] = math.max(st[o], now + burst - math.min(remaining * unit_s, burst))
end

function P.bucket_stop(st, o, per_minute, now, retry_after_s)
    local burst = P.bucket_terms(st, o, per_minute)
    st[o] = math.max(st[o], now + retry_after_s + burst)
end
