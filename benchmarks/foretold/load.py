"""The mixed load of the scenario eta: tenants, priorities, pools, short and long tasks, runs in bursts. Pure."""

import math
import random
from collections.abc import Mapping

from benchmarks.fairness.score import Arrival, Part, TenantPlan, waiting
from benchmarks.storm.arrivals import MIX

SLOTS: Mapping[str, int] = {"tool_read": 8, "tool_write": 4}
MEAN_S: Mapping[str, float] = {"tool_read": 2.0, "tool_write": 4.0}
SIGMA = 0.8  # of the lognormal durations
LONGEST_S = 60.0
TENANTS: Mapping[str, TenantPlan] = {
    "large": TenantPlan(weight=2.0),
    "middle": TenantPlan(weight=1.0),
    "small": TenantPlan(weight=1.0),
}
ASKING = (0.5, 0.3, 0.2)  # each tenant's share of what is submitted
STEADY_RATIO, RUN_RATIO = 0.8, 0.25  # of each pool's work: single tasks, and runs in bursts
RUN_EVERY_S = 60.0
TAG = "foretold"


def arrivals(for_s: float, *, seed: int, faster: float = 1.0) -> list[Arrival]:
    """Return what is submitted within `for_s`; every task has a number of its own. `faster`: all is so much shorter."""
    dice = random.Random(seed)
    found: list[Arrival] = []
    number = 0

    def part(pool: str) -> Part:
        nonlocal number
        mean_s = MEAN_S[pool] / faster
        drawn_s = min(LONGEST_S, mean_s * dice.lognormvariate(-SIGMA * SIGMA / 2, SIGMA))
        number += 1
        return Part(tag=TAG, n=1, first=number, duration_s=round(drawn_s, 3), kind=waiting(pool))

    def tenant() -> str:
        return dice.choices(list(TENANTS), ASKING)[0]

    for pool, slots in SLOTS.items():
        per_s = slots * faster / MEAN_S[pool]
        at_s = 0.0
        while (at_s := at_s + dice.expovariate(STEADY_RATIO * per_s)) < for_s:
            priority = dice.choices(range(len(MIX)), MIX)[0]
            found.append(Arrival(at_s=at_s, tenant=tenant(), priority=priority, parts=(part(pool),)))
        n = round(RUN_RATIO * per_s * RUN_EVERY_S)
        for turn in range(math.ceil(for_s / RUN_EVERY_S)):
            at_s = min(for_s, (turn + dice.random()) * RUN_EVERY_S)
            parts = tuple(part(pool) for _ in range(n))
            found.append(Arrival(at_s=at_s, tenant=tenant(), priority=2, run=True, parts=parts))
    return sorted(found, key=lambda one: one.at_s)
