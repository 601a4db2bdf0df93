"""Who held how much of what for how long, to the second: slots of pools, resources, and what both together cost.

A lease costs 1 a second, or as many slots as its share of the scarcest resource it holds would be (policy, rule 9).

It only adds up; what it says of a stretch of time is the difference of two readings.
Invariants: a reading doesn't change it; what leases hold now is counted up to the second of the reading.
"""

from collections.abc import Callable, Mapping

from harness.policy.flow import needs
from harness.sim.rows import Lease

Holder = tuple[str, str, str, int]  # "pool", "resource" or "cost" (of a pool), the name, the tenant's group, priority
Reading = Mapping[Holder, float]  # seconds x how many


class Ledger:
    """See the module."""

    def __init__(self) -> None:
        self._held: dict[Holder, list[float]] = {}  # how many now, since when, seconds before
        self._costs: dict[int, float] = {}  # by lease, where it isn't 1

    def begin(self, lease: Lease, now_s: float, *, slots: int, capacities: Callable[[str], int]) -> None:
        """A lease begins. `slots`, `capacities`: what there is of its pool and of resources."""
        if lease.signature:
            shares = [number / max(1, capacities(name)) for name, number in needs(lease.signature)]
            self._costs[lease.id] = max(1.0, slots * max(shares))
        self._count(lease, 1, now_s, self._costs.get(lease.id, 1.0))

    def end(self, lease: Lease, now_s: float) -> None:
        """A lease ends."""
        self._count(lease, -1, now_s, self._costs.pop(lease.id, 1.0))

    def _count(self, lease: Lease, n: int, now_s: float, cost: float) -> None:
        group, priority = lease.tenant.group, lease.priority
        self._change(("pool", lease.pool, group, priority), n, now_s)
        self._change(("cost", lease.pool, group, priority), n * cost, now_s)
        if lease.signature:
            for name, number in needs(lease.signature):
                self._change(("resource", name, group, priority), n * number, now_s)

    def read(self, now_s: float) -> Reading:
        """Return all seconds until now."""
        return {holder: area + n * (now_s - since_s) for holder, (n, since_s, area) in self._held.items()}

    def _change(self, holder: Holder, n: float, now_s: float) -> None:
        held = self._held.get(holder)
        if held is None:
            held = self._held[holder] = [0.0, now_s, 0.0]
        held[2] += held[0] * (now_s - held[1])
        held[1] = now_s
        held[0] += n


def between(before: Reading, after: Reading) -> Reading:
    """Return what came between two readings."""
    return {holder: seconds - before.get(holder, 0.0) for holder, seconds in after.items()}
