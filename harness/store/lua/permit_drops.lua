-- What a refusal does to limiter and buckets, step by step as in policy/limits, policy/bucket and policy/desk.
function P.believed(retry_after_s) return math.min(math.max(retry_after_s, 0), $state.RETRY_AFTER_CAP_S) end

function P.limit_restart(st, cfg, now)
    local known = st.proven
    if known == 0 then known = st.limit end
    st.limit = P.bounded(cfg, math.floor(known * $state.RESTART_RATIO))
    st.mode, st.top_s, st.canary_s, st.pause_s, st.refused = $state.RAMP, 0, 0, 0, 0
    st.hi, st.hi_s, st.proven = 0, now, 0
    return 'restart'
end

function P.block(st, now, pause_s)
    if pause_s > $state.BLOCK_S then st.blocked_s = math.max(st.blocked_s, now + pause_s) end
end

function P.csl_pause(st, now, pause_s)
    st.pause_s = math.max(st.pause_s, now + pause_s)
    P.block(st, now, pause_s)
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

function P.bucket_stop(st, o, per_minute, now, retry_after_s)
    local burst = P.bucket_terms(st, o, per_minute)
    st[o] = math.max(st[o], now + retry_after_s + burst)
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
