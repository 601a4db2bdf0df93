-- The breaker when it isn't simply closed, step by step as in policy/breaker. Its window is a value of its own: what counts now
-- and the sums of the rest are in the state, so that a bucket's end alone reads and writes it. No call is told as slow
-- (policy/desk), so slow ones aren't kept.
-- A new bucket counts from now on. The value: calls, then failures, of BUCKETS buckets each.
function P.breaker_turn(key, st, number)
    local name, w = key .. ':window:$state_of.LAYOUT', nil
    local raw = redis.call('GET', name)
    if raw then
        w = {struct.unpack('$window_of.FORMAT', raw)}
    else
        w = {}
        for i = 1, $window_of.SIZE do w[i] = 0 end
    end
    local i = st.w_number % $breaker.BUCKETS + 1
    w[i], w[i + $breaker.BUCKETS] = st.w_calls, st.w_failures
    for step = math.max(st.w_number + 1, number - $breaker.BUCKETS + 1), number do
        i = step % $breaker.BUCKETS + 1
        w[i], w[i + $breaker.BUCKETS] = 0, 0
    end
    st.w_number, st.w_calls, st.w_failures, st.w_calls_before, st.w_failures_before = number, 0, 0, 0, 0
    for at = 1, $breaker.BUCKETS do
        st.w_calls_before = st.w_calls_before + w[at]
        st.w_failures_before = st.w_failures_before + w[at + $breaker.BUCKETS]
    end
    redis.call('SET', name, struct.pack('$window_of.FORMAT', unpack(w, 1, $window_of.SIZE)), 'EX', 2 * $breaker.WINDOW_S)
end

function P.breaker_forget(key, st)
    for i = 1, $breaker.PROBES do st[$at.b_probes_s + i - 1] = 0 end
    st.w_calls, st.w_failures, st.w_calls_before, st.w_failures_before = 0, 0, 0, 0
    redis.call('DEL', key .. ':window:$state_of.LAYOUT')
end

function P.breaker_open(key, st, cfg, now, jitter)
    local open_s = math.min($breaker.OPEN_MOST_S, $breaker.OPEN_S * 2 ^ math.min(st.b_k, 10))
    st.b_mode, st.b_since_s = $breaker.OPEN, now
    st.b_until_s = now + open_s * (1 - $breaker.JITTER + 2 * $breaker.JITTER * jitter)
    st.b_streak = 0
    P.breaker_forget(key, st)
    P.note(key, now, P.limit_now(st, cfg), 0, '$desk.OPENED', P.mode_of(st, cfg))
end

function P.breaker_probed(key, st, cfg, now, sent_s, counts, failed, jitter)
    for i = 1, $breaker.PROBES do
        local at = $at.b_probes_s + i - 1
        if st[at] > 0 and math.abs(st[at] - sent_s) < $breaker.SAME_S then
            st[at] = 0
            break
        end
    end
    if not counts or sent_s < st.b_since_s - $breaker.SAME_S then return end
    if failed then
        st.b_k = st.b_k + 1
        P.breaker_open(key, st, cfg, now, jitter)
        return
    end
    st.b_streak = st.b_streak + 1
    if st.b_streak < $breaker.PROBES then return end
    st.b_mode, st.b_since_s, st.b_streak = $breaker.CLOSED, now, 0
    P.breaker_forget(key, st)
    P.note(key, now, 0, P.limit_now(st, cfg), '$desk.CLOSED', P.mode_of(st, cfg))
    if cfg.limiter ~= $how.fixed then
        local limit = st.limit
        P.changed(key, st, cfg, now, limit, st.trim, P.limit_restart(st, cfg, now))
    end
end
