"""What comes when: the arrivals of a scenario's works, in order of time, drawn from the dice that it is given."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import accumulate
from random import Random
from typing import NamedTuple

from harness.sim.rows import Tenant
from harness.sim.scenario import Work


class Arrival(NamedTuple):
    """At this second, `batch` tasks of a work for one tenant (as one run, if the work says so)."""

    at_s: float
    tenant: Tenant
    work: Work


def arrivals(works: Sequence[Work], tenants: dict[str, list[Tenant]], dice: Random) -> Iterator[Arrival]:
    """Yield all arrivals in order. `tenants`: by group. Each work has dice of its own: one more changes no other."""
    streams = [_of(work, tenants[work.tenants], Random(dice.getrandbits(64))) for work in works]
    return merge(*streams, key=lambda arrival: arrival.at_s)


def _of(work: Work, tenants: list[Tenant], dice: Random) -> Iterator[Arrival]:
    if not tenants:
        return iter(())
    if work.law == "poisson":
        return _poisson(work, tenants, dice)
    if work.law == "every":
        return merge(*(_every(work, tenant, dice.random()) for tenant in tenants), key=lambda arrival: arrival.at_s)
    return (Arrival(at_s, tenant, work) for at_s in work.at_s for tenant in tenants)


def _poisson(work: Work, tenants: list[Tenant], dice: Random) -> Iterator[Arrival]:
    """One stream for the group: the sum of Poisson streams is one, whose arrivals fall on tenants by their rates."""
    shares = list(accumulate((rank + 1) ** -work.skew for rank in range(len(tenants))))
    rate = work.rate_per_s * len(tenants)
    at_s = work.from_s + dice.expovariate(rate)
    while at_s < work.until_s:
        yield Arrival(at_s, tenants[bisect_left(shares, dice.random() * shares[-1])], work)
        at_s += dice.expovariate(rate)


def _every(work: Work, tenant: Tenant, phase: float) -> Iterator[Arrival]:
    at_s = work.from_s + phase * work.every_s
    while at_s < work.until_s:
        yield Arrival(at_s, tenant, work)
        at_s += work.every_s
