"""What limits hold of a flow: caps, quotas, resources, pauses, ramps. All of them have room, or nothing is taken.

A Gate stands for one plan of one pool. It answers by the first limit that binds, as a reason for people, and takes
from the Room what a pick needs in one step. Within a plan room only shrinks: what was refused stays refused.

Rule 8   Soft cap: while another tenant has work here, or had in the last 10 min, a tenant's P1 to P3 hold at most
         ceil(0.9 C) slots of a pool of 10 or more.
Rule 14  Fan-out of long tasks (more than 10 S): a run beside others leaves the pool at least one slot of two, one or
         two of ten, five of fifty.
Pressure The cap of a run, and what rule 14 leaves its long tasks, are halved at high and above (pressure.fanout).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import ceil

from harness.policy import pressure
from harness.policy.flow import FlowFacts, needs
from harness.policy.forms import Forms
from harness.policy.line import Line
from harness.policy.plan import Pick
from harness.policy.room import Pause, Room, hold
from harness.policy.settings import QUARANTINE

SOFT_FROM_SLOTS = 10
SOFT_RATIO = 0.9
LONG_MEANS = 10.0  # a task is long beyond so many times the pool's mean
HEADROOM_FROM_SLOTS = 10
HEADROOM_WAIT_S = 2.5  # a slot of the pool ends so seldom that an interactive task would feel it
NO_LIMIT = 10**9


@dataclass(frozen=True, kw_only=True, slots=True)
class Stopped:
    """What may not start in a pool whatever the room: paused, or beyond a budget (tenant, signature)."""

    priorities: Mapping[int, str] = field(default_factory=dict)
    tenants: Mapping[int, str] = field(default_factory=dict)
    runs: Mapping[int, str] = field(default_factory=dict)
    beyond: Collection[int] = ()
    costing: Collection[str] = ()


def stopped(pool: str, pauses: Sequence[Pause], beyond: Collection[int], costing: Collection[str]) -> Stopped:
    """Return what pauses and budgets stop in a pool. `costing`: signatures that cost, for tenants `beyond`."""
    if not pauses and not beyond:
        return NOTHING_STOPPED
    priorities: dict[int, str] = {}
    tenants: dict[int, str] = {}
    runs: dict[int, str] = {}
    for scope, key, _, _ in pauses:
        if scope == "priority" and key in ("p0", "p1", "p2", "p3"):
            priorities[int(key[1])] = f"paused:{scope}:{key}"
        elif scope == "pool_priority" and key.startswith(f"{pool}.p"):
            priorities[int(key[-1])] = f"paused:{scope}:{key}"
        elif scope == "tenant":
            tenants[int(key)] = f"paused:{scope}"
        elif scope == "run":
            runs[int(key)] = f"paused:{scope}"
    return Stopped(priorities=priorities, tenants=tenants, runs=runs, beyond=beyond, costing=costing)


NOTHING_STOPPED = Stopped()


@lru_cache(maxsize=256)
def soft_cap(slots: int) -> int:
    """Return how many slots of a pool a tenant's P1 to P3 may hold beside others (rule 8).

    >>> [soft_cap(slots) for slots in (1, 4, 10, 11, 50)]
    [1, 4, 9, 10, 45]
    """
    return slots if slots < SOFT_FROM_SLOTS else ceil(SOFT_RATIO * slots - 1e-9)


@lru_cache(maxsize=256)
def fan_out_cap(slots: int) -> int:
    """Return how many slots of a pool a run's long tasks may hold beside others (rule 14).

    >>> [fan_out_cap(slots) for slots in (1, 2, 4, 10, 50)]
    [1, 1, 3, 8, 45]
    """
    ratio = 0.9 if slots >= 50 else 0.8
    return max(1, min(slots - 1, ceil(ratio * slots - 1e-9)))


def headroom(slots: int, mean_s: float, *, p0_expected: bool) -> int:
    """Return how many slots only P0 may take (R8), where P0 comes and would wait long for a slot to end.

    >>> headroom(10, 60.0, p0_expected=True), headroom(10, 1.0, p0_expected=True), headroom(4, 60.0, p0_expected=True)
    (1, 0, 0)
    """
    return int(slots >= HEADROOM_FROM_SLOTS and p0_expected and mean_s / slots > HEADROOM_WAIT_S)


def left_of(room: Room, tenant: int, resource: str) -> int | None:
    """Return how many of a resource its usual cap leaves to a tenant that has no quota on it. None: any number."""
    cap = room.tenant_caps.get(resource)
    if cap is None or (tenant, "resource", resource) in room.quotas:
        return None
    return cap - room.of_tenants.get((tenant, resource), 0)


class Gate:
    """See the module. `stop`: what may not start at all. `forms`: in which work may go; None: whole."""

    def __init__(
        self, pool: str, room: Room, line: Line, stop: Stopped, now_s: float, forms: Forms | None = None
    ) -> None:
        self.forms = forms
        self.pool = pool
        self.room = room
        self._line = line
        self._owners = line.owners
        self._stop = stop
        self._now_s = now_s
        self._slots = room.slots.get(pool, 0)
        self._flight = room.flight[pool]
        self._soft = soft_cap(self._slots)
        self._level = room.level
        self._ramps = room.ramps.get(pool, {})
        self._quotas = bool(room.quotas)

    def priority(self, priority: int) -> str | None:
        """Return what holds a whole class, if anything."""
        if priority in self._stop.priorities:
            return self._stop.priorities[priority]
        return "ramp" if self._ramps.get(("priority", priority), 1) <= 0 else None

    def signature(self, signature: str, priority: int) -> str | None:
        """Return what holds all flows of a class that need this, if anything."""
        resources = self.room.resources
        for resource, n in needs(signature):
            left = resources.get(resource, 0)
            if left < n and (priority or left + self.room.urgent.get(resource, 0) < n):
                return f"resource:{resource}"
        return None

    def shut(self, signature: str, priority: int) -> str | None:
        """Return what holds all flows of a class that need this, in whatever form their work may go."""
        reason = self.signature(signature, priority)
        if reason is None or self.forms is None:
            return reason
        others = self.forms.also(signature, priority)
        return reason if all(self.signature(other, priority) for other in others) else None

    def tenant(self, priority: int, tenant: int) -> str | None:
        """Return what holds a tenant's flows of a class, if anything."""
        stop = self._stop
        if stop.tenants and tenant in stop.tenants:
            return stop.tenants[tenant]
        room = self.room
        if room.tenants.get(tenant, 0) >= self._owners.cap(tenant):
            return "tenant_cap"
        if self._quotas and room.quotas.get((tenant, "pool", self.pool), 1) <= 0:
            return f"quota:{self.pool}"
        if self._ramps and self._ramps.get(("tenant", tenant), 1) <= 0:
            return "ramp"
        if priority and self._flight.tenants.get(tenant, 0) >= self._soft < self._slots:
            return "soft_cap" if self._line.others_than(tenant, self._now_s) else None
        return None

    def run(self, run: int) -> str | None:
        """Return what holds a run's flows, if anything."""
        if run in self._stop.runs:
            return self._stop.runs[run]
        cap = self._run_cap(run)
        if cap is not None and self.room.runs.get(run, 0) >= cap:
            return "run_cap"
        return "ramp" if self._ramps and self._ramps.get(("run", run), 1) <= 0 else None

    def _run_cap(self, run: int) -> int | None:
        cap = self._owners.runs.get(run)
        return pressure.fanout(self._level, cap) if cap else cap

    def pair(self, tenant: int, signature: str) -> str | None:
        """Return what holds a tenant's flows of this signature, if anything."""
        stop = self._stop
        if stop.beyond and tenant in stop.beyond and signature in stop.costing:
            return "budget"
        if self._quotas:
            for resource, n in needs(signature):
                if self.room.quotas.get((tenant, "resource", resource), n) < n:
                    return f"quota:{resource}"
        if self.room.tenant_caps:
            for resource, n in needs(signature):
                left = left_of(self.room, tenant, resource)
                if left is not None and left < n:
                    return f"quota:{resource}"
        return None

    def full(self, flow: FlowFacts, signature: str) -> str | None:
        """Return what lacks the room for a task of a flow that needs this."""
        reason = self.signature(signature, flow.priority) if signature else None
        return reason or self.pair(flow.tenant, signature)

    def flow(self, flow: FlowFacts) -> str | None:
        """Return what holds all of a flow's tasks alike, in whatever form they may go."""
        reason = self.full(flow, flow.signature)
        if reason is None or self.forms is None:
            return reason
        return reason if all(self.full(flow, other) for other in self.forms.also_of(flow)) else None

    def fan_out(self, flow: FlowFacts, est_s: float, mean_s: float) -> str | None:
        """Return whether a run holds as many slots as its long tasks may (rule 14)."""
        if not flow.run or not mean_s or est_s <= LONG_MEANS * mean_s:
            return None
        held = self._flight.classes[flow.priority].get(flow.tenant)
        of_run = held.runs.get(flow.run) if held else None
        if of_run is None or of_run.leases < pressure.fanout(self._level, fan_out_cap(self._slots)):
            return None
        known = self._line.classes[flow.priority].tenants.get(flow.tenant)
        alone = known is None or len(known.runs) == 1
        return None if alone and not self._line.others_than(flow.tenant, self._now_s) else "fan_out"

    def members(self, flow: FlowFacts) -> int:
        """Return how many members tenant cap, run cap and quotas leave to a flow that may start."""
        room = self.room
        left = self._owners.cap(flow.tenant) - room.tenants.get(flow.tenant, 0)
        cap = self._run_cap(flow.run) if flow.run else None
        if cap is not None:
            left = min(left, cap - room.runs.get(flow.run, 0))
        return min(left, room.quotas.get((flow.tenant, "pool", self.pool), NO_LIMIT))

    def cost(self, signature: str) -> float:
        """Return what a second of a task costs: as many slots as its scarcest resource could serve with (rule 9)."""
        cost = 1.0
        for resource, n in needs(signature):
            cap = self.room.capacities.get(resource, 0)
            if cap > 0:
                cost = max(cost, self._slots * n / cap)
        return cost

    def take(self, pick: Pick) -> None:
        """Take all that a pick holds."""
        flow, signature = pick.flow, pick.signature
        hold(
            self.room,
            self.pool,
            QUARANTINE if pick.quarantine else None,
            (flow.priority, flow.tenant, flow.run, pick.lane),
            signature,
            1,
            len(pick.tasks),
            pick.cost,
        )
        if signature:
            self.room.ends.append((self._now_s + pick.est_s, signature))
        if self._ramps:
            for scope in (("priority", flow.priority), ("tenant", flow.tenant), ("run", flow.run)):
                if scope in self._ramps:
                    self._ramps[scope] -= 1
