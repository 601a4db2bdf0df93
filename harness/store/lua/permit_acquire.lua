-- Give a call a permit of each of its resources; or none, and say what binds and until when. A refusal burns nothing.
-- KEYS: the resources. ARGV: 1 time in s ('': the server's), 2 call, 3 task:release, 4 process, 5 tenant, 6 what is asked (q:
-- scripts.QUESTION: `waits` it keeps a place when refused, `again` it may hold them already since an answer was lost, `first`
-- of a first attempt); then for each resource its configuration and what is asked of it (cfg: scripts.CONFIG, with `cap` the
-- tenant's, -1 none; `tokens`; `birth` of the state as the process knows it, 0 not yet).
-- TTL: that of the permits, see permit_core. Returns: {'1', time (a double), then birth and calls in flight before, for each
-- resource}, {'0', time, resource's number, limit, wait s, until, ahead, limit now, then the births}, or {'2', births}: Redis has
-- lost what this process knew; it must register its running calls before it may ask.
local now, member, task, tenant, many = P.clock(ARGV[1]), ARGV[2], ARGV[3], ARGV[5], #KEYS
local q = {struct.unpack('$question_of.FORMAT', ARGV[6])}
local place, waits, first = q.place, q.waits == 1, q.first == 1
local holds, entry = PREFIX .. 'task:' .. task, ARGV[4] .. ' ' .. member
local configs, states, counts, births, lines, more, fresh, reborn = {}, {}, {}, {}, {}, nil, nil, false

-- 1. The states; whoever knows an earlier life must tell first what runs.
for i = 1, many do
    local cfg = {struct.unpack('$config_of.FORMAT', ARGV[6 + i])}
    local st, new = P.load(KEYS[i], cfg, now, cfg.birth)
    configs[i], states[i], births[i] = cfg, st, ''
    if cfg.birth ~= st.born_s then
        births[i] = P.exact(st.born_s)
        if cfg.birth ~= 0 then reborn = true end
    end
    if new then
        fresh = fresh or {}
        fresh[i] = true
        -- Every process shall tell at once what runs.
        if st.door_s > 0 then redis.call('PUBLISH', PREFIX .. 'life', births[i]) end
    end
end
if reborn then
    for i = 1, many do if fresh and fresh[i] then P.save(KEYS[i], states[i]) end end
    return {'2', unpack(births)}
end

-- 2. An answer that was lost is given again.
if q.again == 1 then
    local held = redis.call('HGET', holds, member)
    if held then
        local facts, answer = cmsgpack.unpack(held), {}
        for i = 1, many do
            answer[2 * i - 1], answer[2 * i] = births[i], facts[i] and facts[i][2] or 0
        end
        return {'1', struct.pack('<d', facts[1][3]), unpack(answer)}
    end
end

-- 3. Each resource is asked; the limit that holds longest is told.
local worst, limit, wait, ahead = 0, nil, -1, 0
for i = 1, many do
    local key, st, cfg = KEYS[i], states[i], configs[i]
    if now >= st.sweep_s then P.sweep(key, st, now) end
    local n, line, before, mine = redis.call('ZCOUNT', key .. ':held', now, '+inf'), 0, 0, 0
    if st.waited > 0 then line = redis.call('ZCARD', key .. ':line') end
    st.waited = line > 0 and 1 or 0
    if cfg.limiter == $how.fixed and st.limit == cfg.ceiling and st.b_mode == $breaker.CLOSED then
        if q.priority == 0 then st.p0_s = now end -- time changes nothing here
    elseif P.step(key, st, cfg, now, n, line, q.priority) then
        more = more or {}
        more[i] = true
    end
    if line > 0 then before = redis.call('ZCOUNT', key .. ':line', '-inf', '(' .. P.exact(place)) end
    if cfg.cap >= 0 then mine = redis.call('ZCOUNT', key .. ':tenant:' .. tenant, now, '+inf') end
    local binds, binds_s = P.binding(st, cfg, now, n, before, q.priority, mine)
    if binds then
        if binds_s > wait then worst, limit, wait, ahead = i, binds, binds_s, before end
        if before == 0 and (binds == 'requests' or binds == 'tokens') then
            st.head_s, st.head = now + binds_s, binds == 'tokens' and 1 or 0
        end
    end
    counts[i], lines[i] = n, line
    redis.call('ZADD', key .. ':asked', now + $permits.ASKED_S, task)
end

-- 4. None: keep a place where it binds; after JOINT_S in each, so that all are free for it together one day.
if worst > 0 then
    for i = 1, many do
        local key = KEYS[i]
        if waits and limit ~= 'tenant' and (i == worst or now - q.since_s >= $permits.JOINT_S) then
            states[i][$at.waited] = 1
            redis.call('ZADD', key .. ':line', place, entry)
            redis.call('ZADD', key .. ':seen', now + $permits.WAITER_S, entry)
        elseif many > 1 then
            redis.call('ZREM', key .. ':line', entry)
        end
        P.save(key, states[i])
        if more and more[i] then P.wake(key, states[i], configs[i], now) end
    end
    return {'0', P.exact(now), worst, limit, P.exact(wait), P.exact(wait > 0 and now + wait or 0), ahead,
        P.limit_now(states[worst], configs[worst]), unpack(births)}
end

-- 5. All.
local facts, answer, ttl_s = {}, {'1', struct.pack('<d', now)}, 0
for i = 1, many do
    local key, st, cfg, n = KEYS[i], states[i], configs[i], counts[i]
    redis.call('ZADD', key .. ':held', now + cfg.ttl_s, member)
    facts[i] = P.let_in(key, st, cfg, now, n, first)
    if cfg.cap >= 0 then
        redis.call('ZADD', key .. ':tenant:' .. tenant, now + cfg.ttl_s, member)
        redis.call('EXPIRE', key .. ':tenant:' .. tenant, math.ceil(cfg.ttl_s) + 60)
        facts[i][6] = tenant
    end
    if waits and lines[i] > 0 then redis.call('ZREM', key .. ':line', entry) end
    P.save(key, st)
    if more and more[i] then P.wake(key, st, cfg, now) end
    answer[2 * i + 1], answer[2 * i + 2] = births[i], n
    if cfg.ttl_s > ttl_s then ttl_s = cfg.ttl_s end
end
redis.call('HSET', holds, member, cmsgpack.pack(facts))
redis.call('EXPIRE', holds, math.ceil(ttl_s) + 60)
return answer
