-- A call no longer waits; a task that holds nothing then is about to end, or does something else: it counts as one that asks
-- when it asks again. A permit that it got without knowing (the answer was lost) ends as if nothing had been sent.
-- KEYS: the resources, in the order of the call's. ARGV: 1 time ('': the server's), 2 call, 3 task:release,
-- 4 process, then a config for each resource.
-- TTL: none set. Returns: 1 when it held a permit, else 0.
local holds, member, entry = PREFIX .. 'task:' .. ARGV[3], ARGV[2], ARGV[4] .. ' ' .. ARGV[2]
local held = redis.call('HGET', holds, member)
if held then redis.call('HDEL', holds, member) end
local now, idle = P.clock(ARGV[1]), redis.call('EXISTS', holds) == 0
for i = 1, #KEYS do
    local key, cfg = KEYS[i], {struct.unpack('$config_of.FORMAT', ARGV[4 + i])}
    redis.call('ZREM', key .. ':line', entry)
    redis.call('ZREM', key .. ':seen', entry)
    if idle then redis.call('ZREM', key .. ':asked', ARGV[3]) end
    for _, fact in ipairs(held and cmsgpack.unpack(held) or {}) do
        if fact[1] == key then P.free(key, cfg, now, member, fact, 0) end
    end
end
return held and 1 or 0
