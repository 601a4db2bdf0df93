"""Who held how much of what for how long, to the second: slots of pools, resources, and what both together cost.

A lease costs 1 a second, or as many slots as its share of the scarcest resource it holds would be (policy, rule 9).

It only adds up; what it says of a stretch of time is the difference of two readings.
Invariants: a reading doesn't change it; what leases hold now is counted up to the second of the reading.
"""

from collections.abc import Callable, Mapping

from harness.policy.flow import needs
from harness.sim.rows import Lease

Holder = tuple[str, str, str, int]  # "pool", "resource" or "cost" (of a pool), the name, the tenant's group, priority
Cell = list[float]  # how many now, since when, seconds before
Reading = Mapping[Holder, float]  # seconds x how many


class Ledger:
    """See the module."""

    def __init__(self) -> None:
        self._held: dict[Holder, Cell] = {}
        self._leases: dict[int, tuple[tuple[Cell, float], ...]] = {}  # what each has of what
        self._plain: dict[tuple[str, str, int], tuple[tuple[Cell, float], ...]] = {}  # of those without resources

    def begin(self, lease: Lease, now_s: float, *, slots: int, capacities: Callable[[str], int]) -> None:
        """A lease begins. `slots`, `capacities`: what there is of its pool and of resources."""
        held = self._leases[lease.id] = self._of(lease, slots, capacities)
        for cell, n in held:
            _change(cell, n, now_s)

    def end(self, lease: Lease, now_s: float) -> None:
        """A lease ends."""
        for cell, n in self._leases.pop(lease.id):
            _change(cell, -n, now_s)

    def _of(self, lease: Lease, slots: int, capacities: Callable[[str], int]) -> tuple[tuple[Cell, float], ...]:
        pool, group, priority = lease.pool, lease.tenant.group, lease.priority
        if not lease.signature:
            plain = self._plain.get((pool, group, priority))
            if plain is None:
                whose = ("pool", pool, group, priority), ("cost", pool, group, priority)
                plain = self._plain[pool, group, priority] = tuple([(self._cell(holder), 1.0) for holder in whose])
            return plain
        wanted = needs(lease.signature)
        cost = max(1.0, slots * max([number / max(1, capacities(name)) for name, number in wanted]))
        holders: list[tuple[Holder, float]] = [
            (("pool", pool, group, priority), 1.0),
            (("cost", pool, group, priority), cost),
        ]
        holders += [(("resource", name, group, priority), number) for name, number in wanted]
        return tuple([(self._cell(holder), n) for holder, n in holders])

    def _cell(self, holder: Holder) -> Cell:
        return self._held.setdefault(holder, [0.0, 0.0, 0.0])

    def read(self, now_s: float) -> Reading:
        """Return all seconds until now."""
        return {holder: area + n * (now_s - since_s) for holder, (n, since_s, area) in self._held.items()}


def _change(cell: Cell, n: float, now_s: float) -> None:
    cell[2] += cell[0] * (now_s - cell[1])
    cell[1] = now_s
    cell[0] += n


def between(before: Reading, after: Reading) -> Reading:
    """Return what came between two readings."""
    return {holder: seconds - before.get(holder, 0.0) for holder, seconds in after.items()}
