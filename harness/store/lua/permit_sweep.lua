-- Every SWEEP_S: take out who is gone. Permits that have expired don't count anyway.
function P.sweep(key, st, now)
    st.sweep_s = now + $permits.SWEEP_S
    redis.call('ZREMRANGEBYSCORE', key .. ':held', '-inf', now)
    redis.call('ZREMRANGEBYSCORE', key .. ':asked', '-inf', now)
    local gone = redis.call('ZRANGEBYSCORE', key .. ':seen', '-inf', now)
    for i = 1, #gone do
        redis.call('ZREM', key .. ':line', gone[i])
        redis.call('ZREM', key .. ':seen', gone[i])
    end
    for _, part in ipairs({':held', ':asked', ':line', ':seen', ':latency'}) do
        redis.call('EXPIRE', key .. part, $permits.STATE_S)
    end
end
