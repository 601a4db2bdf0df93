-- A failed call's task will come back: take that from the resource's retry budget, and say for how long it must wait.
-- KEYS: 1 the resource. ARGV: 1 time ('': the server's), 2 config.
-- TTL: as permit_core. Returns: seconds until it may.
local now, cfg = P.clock(ARGV[1]), P.config(ARGV[2])
local st = P.load(KEYS[1], cfg, now, 0)
local wait = P.budget_owe(st, now, cfg.per_s)
P.save(KEYS[1], st)
return P.exact(wait)
