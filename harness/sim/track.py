"""How a simulated world goes over time: a few numbers, taken at even steps, for a chart. It changes nothing.

Invariant: every series has one number for each step.
"""

from collections import Counter

from harness.policy.flow import needs
from harness.sim.world import World

STEPS = 240  # of a whole simulation: a chart shows no more


class Track:
    """The series of one cell, by name. `counts`: of what happened so far, from which answers a minute are told."""

    def __init__(self, world: World, counts: Counter[str], *, every_s: float) -> None:
        self.every_s = every_s
        self.series: dict[str, list[float]] = {}
        self._world, self._counts = world, counts
        self._before = Counter[str]()
        self._steps = 0

    def step(self, level: float) -> None:
        """Take the numbers of now. `level`: of pressure."""
        world = self._world
        waiting, flying = [0.0] * 4, [0.0] * 4
        used: dict[str, float] = dict.fromkeys(world.room.capacities, 0.0)
        for flows in world.flows.values():
            for flow in flows:
                waiting[flow.facts.priority] += len(flow.ready)
        for lease in world.leases.values():
            flying[lease.priority] += max(1, len(lease.members))
            for name, n in needs(lease.signature):
                used[name] = used.get(name, 0.0) + n
        self._note("level", level)
        for p in range(4):
            self._note(f"waiting p{p}", waiting[p])
            self._note(f"in flight p{p}", flying[p])
        for name, in_use in used.items():
            self._note(f"used {name}", in_use)
            self._note(f"limit {name}", world.room.capacities.get(name, 0))
        for name, told in (("submitted", "taken"), ("deferred", "deferred"), ("succeed", "done")):
            self._rate(told, self._counts[name] - self._before[name])
        refused = sum(n for name, n in self._counts.items() if name.startswith("refused_"))
        self._rate("refused", refused - self._before["refused"])
        self._before = self._counts.copy()
        self._before["refused"] = refused
        self._steps += 1

    def _rate(self, name: str, n: float) -> None:
        self._note(f"{name} a second", n / self.every_s)

    def _note(self, name: str, value: float) -> None:
        """Add a number; a series that begins late was 0 until then."""
        line = self.series.setdefault(name, [0.0] * self._steps)
        line.append(float(value))
