-- What every permit script begins with; not a script of its own: store/permits/scripts.py puts them together and writes, for
-- $module.NAME the constant of policy, and for st.NAME and cfg.NAME the place of that field in a list (a resource's state and
-- its configuration are lists of doubles: a tenth of what a map costs here). P holds the functions: as locals, each of which
-- knows many others, making them took half of a script's time.
-- All of a resource's keys are its name in KEYS with a suffix:
--   :state:<layout>  limiter, breaker, buckets, retry budget. TTL permits.STATE_S, as all that has none of its own. Two releases
--            of this code that keep other fields share what is in flight, and each learns for itself until the older is gone
--   :held    ZSET call -> when its permit expires; in flight is what has not expired, never a counter
--   :tenant:<id>  the same of one tenant's calls, where it has a cap. TTL: that of its longest permit + 60 s
--   :line    ZSET "process call" -> place: who waits, in the order of policy.permits.score
--   :seen    ZSET "process call" -> until when it counts as waiting
--   :asked   ZSET task:release -> until when it counts as one that asks
--   :window  the breaker's window. TTL twice its length
--   :latency HASH bin -> successes in the latency guard's window; :guard what the guard keeps of earlier ones
-- and <prefix>task:<task:release> is a HASH call -> what it holds (cmsgpack). TTL: that of its longest permit + 60 s.
local P, PREFIX = {}, '$permits.PREFIX'

function P.clock(given)
    if given ~= '' then return tonumber(given) end -- tests pass the time
    local t = redis.call('TIME')
    return tonumber(t[1]) + tonumber(t[2]) / 1000000
end

function P.exact(number) return string.format('%.17g', number) end

function P.config(packed) return {struct.unpack('$config_of.FORMAT', packed)} end

function P.in_flight(key, now) return redis.call('ZCOUNT', key .. ':held', now, '+inf') end

function P.note(key, now, old, new, reason, mode)
    redis.call('XADD', PREFIX .. 'changes', 'MAXLEN', '~', $permits.CHANGES_MOST, '*', 'r', string.sub(key, #PREFIX + 1),
        't', P.exact(now), 'o', old, 'n', new, 'why', reason, 'm', mode)
end
