"""Who gives way in a plan under pressure: a class that has its share, while more urgent work waits in the pool.

What waits for its own tenant (a pause, a cap, a quota, a budget) or for what nobody has at all doesn't count: a slot
that is kept free for it would stay free. What waits for a resource counts: it needs a slot when that comes.

Asked once a plan and class, after the more urgent classes were offered what there is; goes through LOOKED_THROUGH flows
at most, and takes it that the rest waits.
"""

from collections.abc import Callable
from functools import cache, lru_cache

from harness.policy import pressure
from harness.policy.flow import FlowFacts, Head, needs
from harness.policy.heads import Heads
from harness.policy.line import Line
from harness.policy.pressure import Level
from harness.policy.quota import Gate
from harness.policy.room import Room

LOOKED_THROUGH = 5000  # in a pool: 1 to 2 ms
OWN = ("fan_out", "quarantine")  # of the reasons that hold a task: its run's, its own


@cache
def is_calm(level: Level) -> bool:
    """Return whether no class gives way at a level: then nobody need ask.

    >>> [is_calm(level) for level in Level]
    [True, False, False, False]
    """
    return all(one.share == 1.0 and one.release == "all" for one in pressure.ACTIONS[level])


class Urgency:
    """See the module."""

    __slots__ = ("_flight", "_gate", "_heads", "_known", "_left", "_line", "_mosts", "_room", "_slots", "_why_not")

    def __init__(
        self,
        pool: str,
        line: Line,
        room: Room,
        gate: Gate,
        heads: Heads,
        why_not: Callable[[FlowFacts, Head], str | None],
    ) -> None:
        """`why_not`: what holds a task, beside what holds its tenant's whole class."""
        self._line, self._room, self._gate, self._heads, self._why_not = line, room, gate, heads, why_not
        self._slots, self._flight = room.slots[pool], room.flight[pool]
        self._mosts = _mosts(self._slots, room.level)
        self._known: dict[int, bool] = {}
        self._left = LOOKED_THROUGH

    def pressed(self, p: int) -> bool:
        """Whether a class holds all that the pressure leaves it beyond its lane, while a more urgent one waits."""
        most = self._mosts[p]
        if most >= self._slots:
            return False
        held = sum([one.leases for one in self._flight.classes[p].values()]) - self._flight.lanes[p]
        return held >= most and self._waits_before(p)

    def on_floor(self, p: int) -> bool:
        """Whether a class starts by its own lane alone."""
        return pressure.of(self._room.level, p).release != "all" and self._waits_before(p)

    def _waits_before(self, p: int) -> bool:
        return any(self._waits(one) for one in range(1, p))

    def _waits(self, p: int) -> bool:
        found = self._known.get(p)
        if found is None:
            found = self._known[p] = not self._gate.priority(p) and self._any(p)
        return found

    def _any(self, p: int) -> bool:
        for number, tenant in self._line.classes[p].tenants.items():
            self._left -= 1
            if self._left <= 0:
                return True
            if self._gate.tenant(p, number):
                continue
            for run in tenant.runs.values():
                if run.id and self._gate.run(run.id):
                    continue
                self._left -= len(run.flows)
                if any(self._of_flow(flow) for flow in run.flows.values()):
                    return True
        return False

    def _of_flow(self, flow: FlowFacts) -> bool:
        if self._gate.pair(flow.tenant, flow.signature):
            return False
        short = self._gate.signature(flow.signature, flow.priority) if flow.signature else None
        if short is None:
            seen = self._heads.seen.get(flow.id)
            return seen is None or (bool(seen.heads) and self._why_not(flow, seen.heads[0]) not in OWN)
        return all(self._room.capacities.get(name, 0) >= n for name, n in needs(flow.signature))


@lru_cache(maxsize=256)
def _mosts(slots: int, level: Level) -> tuple[int, ...]:
    return tuple(pressure.most(slots, level, p) for p in range(4))
