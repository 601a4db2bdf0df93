-- Running calls are running: their permits live on.
-- KEYS: none; a permit's facts name its resources. ARGV: 1 time ('': the server's), then 3 for each call: call,
-- task:release, ttl in s.
-- TTL: the new one of each. Returns: the numbers (from 1) of the calls that Redis doesn't know, to be registered.
local now, missing = P.clock(ARGV[1]), {}
for at = 2, #ARGV, 3 do
    local member, holds, ttl_s = ARGV[at], PREFIX .. 'task:' .. ARGV[at + 1], tonumber(ARGV[at + 2])
    local held, lost = redis.call('HGET', holds, member), false
    if held then
        local facts = cmsgpack.unpack(held)
        for i = 1, #facts do
            local fact = facts[i]
            if redis.call('ZSCORE', fact[1] .. ':held', member) then
                redis.call('ZADD', fact[1] .. ':held', now + ttl_s, member)
                redis.call('ZADD', fact[1] .. ':asked', now + $permits.ASKED_S, ARGV[at + 1])
                if fact[6] then
                    redis.call('ZADD', fact[1] .. ':tenant:' .. fact[6], now + ttl_s, member)
                    redis.call('EXPIRE', fact[1] .. ':tenant:' .. fact[6], math.ceil(ttl_s) + 60)
                end
            else
                lost = true
            end
        end
        redis.call('EXPIRE', holds, math.ceil(ttl_s) + 60)
    end
    if lost or not held then missing[#missing + 1] = (at + 1) / 3 end
end
return missing
