-- The latency guard, step by step as in policy/limits/guard. Its window's bins are a HASH of their own (bin -> calls), what it
-- keeps of earlier windows another value: only the end of a window needs them.
function P.guard_quantile(bins, share)
    local total = 0
    for i = 1, $guard.BINS do total = total + bins[i] end
    if total <= 0 then return 0 end
    local left = share * total
    for i = 1, $guard.BINS do
        local count = bins[i]
        if count > 0 and left <= count then return $guard.LEAST_S * $guard.RATIO ^ (i - 1 + left / count) end
        left = left - count
    end
    return $guard.LEAST_S * $guard.RATIO ^ $guard.BINS
end

function P.guard_rise(st, g, now)
    g.cuts, g.trial, g.seconds_before = 0, 0, 0
    if now < g.rest_s then return end
    g.cap = math.max(g.cap + 1, math.floor($guard.RISE * g.cap))
    if g.cap >= st.limit then g.cap, g.rest_s = 0, now + $guard.REST_S end
end

function P.guard_cut(st, cfg, g, now, calls, seconds)
    if g.seconds_before > 0 then
        local expected = g.calls_before / g.seconds_before * seconds
        local noise = (1 / math.max(g.calls_before, 1) + 1 / math.max(calls, 1)) ^ 0.5
        if calls < (1 - $guard.COST_RATIO - noise) * expected then
            g.cap, g.cuts, g.seconds_before, g.rest_s = g.cap_before, 0, 0, now + $guard.REST_S
            return
        end
        g.cuts = g.cuts + 1
    end
    local ratio = ({$guard_of.CUTS})[math.min(g.cuts, $guard_of.CUTS_NUMBER - 1) + 1]
    g.cap_before, g.trial, g.over = g.cap, $guard.WINDOWS, 0
    g.calls_before, g.seconds_before = calls, seconds
    g.cap = math.max(cfg.floor, 1, math.floor(ratio * math.min(g.cap > 0 and g.cap or st.limit, st.limit)))
end

function P.guard_turn(key, st, cfg, now)
    local raw, g, window, day = redis.call('GET', key .. ':guard'), {}, {}, {}
    if raw and #raw == 8 * $guard_of.SIZE then
        g = {struct.unpack('$guard_of.FORMAT', raw)}
    else
        for i = 1, $guard_of.SIZE do g[i] = 0 end
    end
    for i = 1, $guard.BINS do window[i], day[i] = 0, g[$guard_of.BINS_AT + i] end
    local bins = redis.call('HGETALL', key .. ':latency')
    for at = 1, #bins, 2 do window[tonumber(bins[at]) + 1] = tonumber(bins[at + 1]) end
    local past, seconds, days, base_s, median_s, rho = now - st.g_window_s, nil, 0, 0, 0, 0
    seconds = math.max(past, $guard.WINDOW_S)
    for i = 1, $guard.BINS do days = days + day[i] end
    if days >= $guard.DAY_LEAST then base_s = P.guard_quantile(day, $guard.BASE_QUANTILE) end
    if st.g_calls >= $guard.CALLS_LEAST then median_s = P.guard_quantile(window, 0.5) end
    if base_s > 0 then rho = median_s / base_s end
    local calls_3, seconds_3 = st.g_calls + g.calls_1 + g.calls_2, seconds + g.seconds_1 + g.seconds_2
    g.calls_2, g.seconds_2, g.calls_1, g.seconds_1 = g.calls_1, g.seconds_1, st.g_calls, seconds
    local kept = math.max(0, 1 - seconds / $guard.DAY_S)
    for i = 1, $guard.BINS do day[i] = day[i] * kept end
    if median_s > 0 then
        local bin = 0
        if median_s > $guard.LEAST_S then
            bin = math.min($guard.BINS - 1, math.floor(math.log(median_s / $guard.LEAST_S) / math.log($guard.RATIO)))
        end
        day[bin + 1] = day[bin + 1] + 1
    end
    st.g_window_s, st.g_calls = now, 0
    local before = g.cap
    g.over = rho > $guard.SLOW and g.over + 1 or 0
    g.trial = rho > 0 and math.max(0, g.trial - 1) or 0
    if rho < $guard.FAST and g.cap > 0 then
        P.guard_rise(st, g, now)
    elseif rho > $guard.SLOW and g.trial == 0 and now >= g.rest_s and g.over >= $guard.WINDOWS then
        P.guard_cut(st, cfg, g, now, calls_3, seconds_3)
    end
    st.trim = g.cap
    for i = 1, $guard.BINS do g[$guard_of.BINS_AT + i] = day[i] end
    redis.call('DEL', key .. ':latency')
    redis.call('SET', key .. ':guard', struct.pack('$guard_of.FORMAT', unpack(g, 1, $guard_of.SIZE)), 'EX', $permits.STATE_S)
    if g.cap == before then return '' end
    return g.cap > 0 and (before == 0 or g.cap < before) and 'slow' or 'recovered'
end

function P.guard_step(key, st, cfg, now)
    local past = now - st.g_window_s
    if past >= $guard.WINDOW_MOST_S or (past >= $guard.WINDOW_S and st.g_calls >= $guard.CALLS_LEAST) then
        return P.guard_turn(key, st, cfg, now)
    end
    return ''
end
