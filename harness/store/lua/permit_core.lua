-- What every permit script begins with; not a script of its own: store/permits/scripts.py puts them together and writes, for
-- $module.NAME the constant of policy, and for st.NAME and cfg.NAME the place of that field in a list (a resource's state and
-- its configuration are lists of doubles: a tenth of what a map costs here). P holds the functions, which are made when a call
-- needs them: making all took 8 us.
-- All of a resource's keys are its name in KEYS with a suffix:
--   :state:<layout>  limiter, breaker, buckets, retry budget. TTL permits.STATE_S, as all that has none of its own. Two releases
--            of this code that keep other fields share what is in flight, and each learns for itself until the older is gone
--   :held    ZSET call -> when its permit expires; in flight is what has not expired, never a counter
--   :tenant:<id>  the same of one tenant's calls, where it has a cap. TTL: that of its longest permit + 60 s
--   :line    ZSET "process call" -> place: who waits, in the order of policy.permits.score
--   :seen    ZSET "process call" -> until when it counts as waiting
--   :asked   ZSET task:release -> until when it counts as one that asks
--   :window:<layout>  the breaker's window but for what counts now. TTL twice its length
--   :latency HASH bin -> successes in the latency guard's window; :guard what the guard keeps of earlier ones
-- and <prefix>task:<task:release> is a HASH call -> what it holds (cmsgpack). TTL: that of its longest permit + 60 s.
local PREFIX = '$permits.PREFIX'

function P.clock(given)
    if given ~= '' then return tonumber(given) end -- tests pass the time
    local t = redis.call('TIME')
    return t[1] + t[2] / 1000000
end

-- The state, or a new one (then true is the second answer). `known`: the birth that the asking process knows, 0: none.
function P.load(key, cfg, now, known)
    local raw = redis.call('GET', key .. ':state:$state_of.LAYOUT')
    if raw then return {struct.unpack('$state_of.FORMAT', raw)}, false end
    return P.begun(cfg, now, known), true
end

function P.save(key, st)
    redis.call('SET', key .. ':state:$state_of.LAYOUT', struct.pack('$state_of.FORMAT', unpack(st, 1, $state_of.SIZE)),
        'EX', $permits.STATE_S)
end
