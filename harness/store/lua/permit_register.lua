-- A call runs that Redis doesn't know (it was emptied, or away when the call began): it counts from now on.
-- KEYS: the call's resources. ARGV: 1 time ('': the server's), 2 call, 3 task:release, 4 tenant, 5 when it was sent
-- ('': not known by this clock), then 2 for each resource: its configuration (cfg: with `cap` the tenant's, -1 none;
-- `tokens` reserved; `birth` known before), calls in flight before it.
-- TTL: that of the permits. Returns: how many resources it holds.
local now, member, holds = P.clock(ARGV[1]), ARGV[2], PREFIX .. 'task:' .. ARGV[3]
local facts, ttl_s = {}, 0
for i = 1, #KEYS do
    local key, cfg = KEYS[i], {struct.unpack('$config_of.FORMAT', ARGV[4 + 2 * i])}
    local st, fresh = P.load(key, cfg, now, cfg.birth)
    if fresh then P.save(key, st) end
    redis.call('ZADD', key .. ':held', now + cfg.ttl_s, member)
    redis.call('ZADD', key .. ':asked', now + $permits.ASKED_S, ARGV[3])
    facts[i] = {key, tonumber(ARGV[5 + 2 * i]), tonumber(ARGV[5]) or now, cfg.tokens, cfg.tokens}
    if cfg.cap >= 0 then
        facts[i][6] = ARGV[4]
        redis.call('ZADD', key .. ':tenant:' .. ARGV[4], now + cfg.ttl_s, member)
        redis.call('EXPIRE', key .. ':tenant:' .. ARGV[4], math.ceil(cfg.ttl_s) + 60)
    end
    if cfg.ttl_s > ttl_s then ttl_s = cfg.ttl_s end
end
redis.call('HSET', holds, member, cmsgpack.pack(facts))
redis.call('EXPIRE', holds, math.ceil(ttl_s) + 60)
return #KEYS
