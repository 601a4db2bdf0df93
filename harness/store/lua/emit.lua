-- Add one chunk of a running attempt's output, for those who come later and for those who watch now.
-- The id is attempt-number, so what a stale worker sends after its successor has begun is refused by the stream itself.
-- KEYS: 1 the task's stream (it is also the name of its channel).
-- ARGV: attempt, number (from 1), offset (characters before it), cut ('1': the limit is reached), text, ttl in ms.
-- TTL: ARGV[6], anew with each chunk. Returns: 1 added, 0 refused (an older attempt, or the same chunk again).
local id = ARGV[1] .. '-' .. ARGV[2]
local added = redis.pcall('XADD', KEYS[1], id, 'o', ARGV[3], 'c', ARGV[4], 't', ARGV[5])
if type(added) == 'table' and added.err then
    if string.find(added.err, 'equal or smaller', 1, true) then return 0 end
    return added
end
if ARGV[2] == '1' then
    redis.call('XTRIM', KEYS[1], 'MAXLEN', 1) -- the earlier attempt's output is superseded
end
redis.call('PEXPIRE', KEYS[1], ARGV[6])
redis.call('PUBLISH', KEYS[1], id .. ' ' .. ARGV[3] .. ' ' .. ARGV[4] .. '\n' .. ARGV[5])
return 1
