-- Wake those in front who may go now, each through its own process's channel.
function P.wake(key, st, cfg, now)
    local n = redis.call('ZCOUNT', key .. ':held', now, '+inf')
    local room = P.limit_seen(st, cfg, now, 0) - n
    if room < 1 or cfg.capacity == 0 then return end
    local first = redis.call('ZRANGE', key .. ':line', 0, math.min(room, $permits.WAKE_MOST) - 1, 'WITHSCORES')
    if #first == 0 then return end
    local others = P.limit_seen(st, cfg, now, 1) - n
    for i = 1, #first, 2 do
        if (i + 1) / 2 > others and tonumber(first[i + 1]) >= $permits.P0_SCORE then return end
        local process, member = string.match(first[i], '^(%S+) (.+)$')
        redis.call('PUBLISH', '$permits.PREFIX' .. 'wake:' .. process, member)
    end
end
