-- All that is decided at one resource, line by line as in policy/desk.
-- The state, or a new one (then true is the second answer). `known`: the birth that the asking process knows, 0: none.
function P.load(key, cfg, now, known)
    local raw, st = redis.call('GET', key .. '$state_of.SUFFIX'), {}
    if raw then return {struct.unpack('$state_of.FORMAT', raw)}, false end
    for i = 1, $state_of.SIZE do st[i] = 0 end
    st.born_s, st.sweep_s, st.g_window_s, st.r_ratio, st.t_ratio = now, now, now, 1, 1
    P.limit_begin(st, cfg, now)
    if known > 0 or cfg.proven > 0 then st.door_s = now + $permits.DOOR_S end
    return st, true
end

function P.save(key, st)
    redis.call('SET', key .. '$state_of.SUFFIX', struct.pack('$state_of.FORMAT', unpack(st, 1, $state_of.SIZE)),
        'EX', $permits.STATE_S)
end

function P.limit_now(st, cfg)
    if cfg.limiter == $how.fixed or cfg.capacity == 0 then return cfg.capacity end
    local limit = math.min(st.limit, cfg.capacity)
    if st.trim > 0 then limit = math.min(limit, st.trim) end
    return math.floor(limit)
end

function P.mode_of(st, cfg)
    if cfg.limiter ~= $how.csl then return ({'fixed', 'csl', 'aimd', 'gradient'})[cfg.limiter + 1] end
    return ({'ramp', 'hold', 'drain'})[st.mode + 1]
end

-- Note a change of the limit since `before`, if there is one.
function P.changed(key, st, cfg, now, before, reason)
    local after = P.limit_now(st, cfg)
    if after == before then return false end
    P.note(key, now, before, after, reason == '' and 'bounds' or reason, P.mode_of(st, cfg))
    return after > before
end

-- Wake those in front who may go now, each through its own process's channel.
function P.wake(key, st, cfg, now, n)
    local room, others = P.limit_seen(st, cfg, now, 0) - n, nil
    if room < 1 or cfg.capacity == 0 then return end
    others = P.limit_seen(st, cfg, now, 1) - n
    local first = redis.call('ZRANGE', key .. ':line', 0, math.min(room, $permits.WAKE_MOST) - 1, 'WITHSCORES')
    for i = 1, #first, 2 do
        if (i + 1) / 2 > others and tonumber(first[i + 1]) >= $permits.P0_SCORE then return end
        local process, member = string.match(first[i], '^(%S+) (.+)$')
        redis.call('PUBLISH', PREFIX .. 'wake:' .. process, member)
    end
end
