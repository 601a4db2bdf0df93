-- A call is over: its permits end, what it used and how it ended is told to its resources, and who waits is woken.
-- KEYS: the resources, in the order of the call's. ARGV: 1 time ('': the server's), 2 call, 3 task:release, 4 how it ended (rep:
-- scripts.REPORT), then for each resource its configuration (cfg: with `tokens` used, -1 not known).
-- TTL: none set. Returns: 1, or 0 when there is no such permit (told before, or Redis has lost it): then nothing happens.
local holds, member = PREFIX .. 'task:' .. ARGV[3], ARGV[2]
local held = redis.call('HGET', holds, member)
if not held then return 0 end
redis.call('HDEL', holds, member)
local now, facts, rep = P.clock(ARGV[1]), cmsgpack.unpack(held), {struct.unpack('$report_of.FORMAT', ARGV[4])}
for i = 1, #KEYS do
    local key, fact = KEYS[i], facts[i]
    redis.call('ZREM', key .. ':held', member)
    if fact[6] then redis.call('ZREM', key .. ':tenant:' .. fact[6], member) end
    local cfg = {struct.unpack('$config_of.FORMAT', ARGV[4 + i])}
    local st = P.load(key, cfg, now, 0)
    if cfg.tpm > 0 and cfg.tokens >= 0 then
        P.bucket_settle(st, $at.t_tat_s, cfg.tpm, now, fact[5], fact[4], cfg.tokens)
    end
    if i == rep.about then
        P.told(key, st, cfg, now, fact, rep)
    else
        P.aside(key, st, cfg, now, fact, rep.outcome == $outcome.success)
    end
    P.save(key, st)
    if st.waited > 0 then P.wake(key, st, cfg, now) end
end
return 1
