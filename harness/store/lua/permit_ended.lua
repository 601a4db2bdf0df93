-- An attempt is over: it asks for nothing more, and what it may still hold (its worker died) ends without an outcome.
-- KEYS: every resource that it may have asked. ARGV: 1 time ('': the server's), 2 task:release, then a
-- config for each resource.
-- TTL: none set. Returns: how many of its calls held permits.
local holds = PREFIX .. 'task:' .. ARGV[2]
local found = redis.call('HGETALL', holds)
local configs = {}
for i = 1, #KEYS do
    configs[KEYS[i]] = ARGV[2 + i]
    redis.call('ZREM', KEYS[i] .. ':asked', ARGV[2])
end
if #found == 0 then return 0 end
redis.call('DEL', holds)
local now = P.clock(ARGV[1])
for at = 1, #found, 2 do
    local facts = cmsgpack.unpack(found[at + 1])
    for i = 1, #facts do
        local fact = facts[i]
        if configs[fact[1]] then
            -- Whether it was sent is not known: what was reserved stays charged.
            P.free(fact[1], {struct.unpack('$config_of.FORMAT', configs[fact[1]])}, now, found[at], fact, -1)
        else
            redis.call('ZREM', fact[1] .. ':held', found[at])
        end
    end
end
return #found / 2
