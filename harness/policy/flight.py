"""What is in flight in one pool, by class, tenant and run: what the ranks of rule 2 and the lanes of rule 4 look at.

Counts leases, never members: a bundle is one slot. Each lease counts as the scarcest of what it holds (`cost`, rule 9).
"""

from dataclasses import dataclass, field
from operator import add

from harness.policy.lanes import LANES


@dataclass(slots=True)
class Held:
    """Slots of one tenant in one class, or of one run in it.

    Cost seconds beyond the estimates are `overrun_s` + `over_cost` * now: who follows leases one by one counts what
    grows once, when it begins to.
    """

    cost: float = 0.0
    leases: int = 0
    overrun_s: float = 0.0
    over_cost: float = 0.0
    runs: "dict[int, Held]" = field(default_factory=dict)


@dataclass(slots=True)
class Flight:
    """One pool. `tenants`: slots by tenant over all classes; `lanes`: slots paid by each lane; their overrun."""

    classes: tuple[dict[int, Held], ...] = field(default_factory=lambda: ({}, {}, {}, {}))
    costs: list[float] = field(default_factory=lambda: [0.0] * 4)
    tenants: dict[int, int] = field(default_factory=dict)
    lanes: list[int] = field(default_factory=lambda: [0] * LANES)
    lane_overruns_s: list[float] = field(default_factory=lambda: [0.0] * LANES)
    lane_over_costs: list[float] = field(default_factory=lambda: [0.0] * LANES)

    def count(
        self,
        priority: int,
        tenant: int,
        run: int,
        lane: int,
        leases: int,
        cost: float,
        overrun_s: float = 0.0,
        over_cost: float = 0.0,
    ) -> None:
        """Count leases; of negative numbers, take them off again."""
        of_class = self.classes[priority]
        held = of_class.get(tenant)
        if held is None:
            held = of_class[tenant] = Held()
        held.leases += leases
        held.cost += cost
        held.overrun_s += overrun_s
        held.over_cost += over_cost
        if run:
            of_run = held.runs.get(run)
            if of_run is None:
                of_run = held.runs[run] = Held()
            of_run.leases += leases
            of_run.cost += cost
            of_run.overrun_s += overrun_s
            of_run.over_cost += over_cost
            if not of_run.leases:
                del held.runs[run]
        if not held.leases:
            del of_class[tenant]
        # What is left of a sum of floats isn't nothing.
        self.costs[priority] = self.costs[priority] + cost if of_class else 0.0
        left = self.tenants.get(tenant, 0) + leases
        if left:
            self.tenants[tenant] = left
        else:
            self.tenants.pop(tenant, None)
        self.lanes[lane] += leases
        if self.lanes[lane]:
            self.lane_overruns_s[lane] += overrun_s
            self.lane_over_costs[lane] += over_cost
        else:
            self.lane_overruns_s[lane] = self.lane_over_costs[lane] = 0.0

    def overrun(self, priority: int, tenant: int, run: int, lane: int, overrun_s: float, over_cost: float) -> None:
        """Count that leases in flight overrun more, or less, than was counted. Who isn't in flight is passed over."""
        held = self.classes[priority].get(tenant)
        for one in (held, held.runs.get(run) if held and run else None):
            if one is not None:
                one.overrun_s += overrun_s
                one.over_cost += over_cost
        if self.lanes[lane]:
            self.lane_overruns_s[lane] += overrun_s
            self.lane_over_costs[lane] += over_cost

    def overruns_s(self, now_s: float) -> list[float]:
        """Return what each lane's leases have overrun."""
        return [*map(add, self.lane_overruns_s, [cost * now_s for cost in self.lane_over_costs])]
