-- Requests and tokens a minute, step by step as in policy/bucket. A bucket begins at `o`: tat_s, typical, ratio, limit.
function P.bucket_terms(st, o, quota)
    if st[o + 3] > 0 and st[o + 3] < quota then quota = st[o + 3] end
    local share, burst = $bucket.BURST_CALLS * st[o + 1] / quota, $bucket.BURST_MOST_S
    if share < $bucket.BURST_MOST_S / (60 + $bucket.BURST_MOST_S) then
        burst = 60 * share / (1 - share)
        if burst < $bucket.BURST_LEAST_S then burst = $bucket.BURST_LEAST_S end
        if burst > $bucket.BURST_MOST_S then burst = $bucket.BURST_MOST_S end
    end
    local unit_s, least_s = (60 + burst) / quota, 60 / ($bucket.RATE_MOST * quota)
    return burst, unit_s > least_s and unit_s or least_s
end

-- Returns also what one unit costs, for `bucket_take`.
function P.bucket_wait(st, o, per_minute, now, charge)
    local burst, unit_s = P.bucket_terms(st, o, per_minute)
    local cost_s, from_s = charge * unit_s, st[o]
    if cost_s > burst then cost_s = burst end
    if from_s < now then from_s = now end
    local wait_s = from_s + cost_s - burst - now
    return wait_s > 0 and wait_s or 0, unit_s
end

function P.bucket_take(st, o, now, charge, unit_s)
    local from_s, typical = st[o], st[o + 1]
    if from_s < now then from_s = now end
    st[o] = from_s + charge * unit_s
    st[o + 1] = typical + (charge - typical) * (typical > 0 and $bucket.TYPICAL_WEIGHT or 1)
end

function P.bucket_settle(st, o, per_minute, now, charged, estimate, actual)
    local burst, unit_s = P.bucket_terms(st, o, per_minute)
    st[o] = math.max(st[o] + (actual - charged) * unit_s, now - burst)
    if estimate > 0 then
        local found = math.min(math.max(actual / estimate, $bucket.RATIO_LEAST), $bucket.RATIO_MOST)
        st[o + 2] = st[o + 2] + (found - st[o + 2]) * $bucket.RATIO_WEIGHT
    end
end

-- `remaining` negative: not said.
function P.bucket_tighten(st, o, per_minute, now, limit, remaining)
    if limit > 0 then st[o + 3] = limit end
    if remaining < 0 then return end
    local burst, unit_s = P.bucket_terms(st, o, per_minute)
    st[o] = math.max(st[o], now + burst - math.min(remaining * unit_s, burst))
end
