"""What a leader keeps in its memory: the lines of all pools, who owns what stands there, what is still to be written.

Losing it costs one full read (`begin`), never a task. All that moves a clock is in PostgreSQL before or with the move:
a charge is deleted by the commit that writes what it moved, so whoever leads next finds either both or neither.

Invariants: each charge is charged once; what `moved` has handed out is committed, or the memory is thrown away.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from harness.policy import money as policy_money
from harness.policy.accounts import Changes, ClockKey
from harness.policy.known import Kinds
from harness.policy.line import Line
from harness.policy.outlook import Course, Outlook
from harness.policy.owners import Owners, TenantFacts
from harness.policy.plan import Plan
from harness.store.clocks import Moved, Used
from harness.store.flows import FlowKey
from harness.store.snapshot import CHARGES_AT_ONCE, FLOWS_AT_ONCE, InUse, KnownFlow, LineRows, Scopes

LATE_CHARGES = 100  # a charge may be committed after one with a number so much higher; later ones wait for a full look
HELD_FOR_S = 2.0  # what a plan said is told for so long: a pool without a free slot has no plan
RUNS_KEPT = 10_000  # runs without a flow whose caps are kept


@dataclass(slots=True)
class Memory:
    """See the module. Times `_s` are this process's monotonic seconds, but for `now_s`."""

    owners: Owners = field(default_factory=Owners)
    lines: dict[str, Line] = field(default_factory=dict)
    scopes: Scopes | None = None
    kinds: Kinds | None = None  # gathered when the scopes are read: that costs as much as a small plan
    scopes_read_s: float = 0.0
    folded_s: float = 0.0
    looked_whole_s: float = 0.0  # when all charges were last looked at, also late ones
    deleted: list[tuple[float, int, FlowKey]] = field(default_factory=list)  # (due at, how often looked, key)
    beyond: dict[int, policy_money.Standing] = field(default_factory=dict)  # tenants whose budget is spent
    outlook: Outlook | None = None  # of resources; set by another thread (engine.readings), None: nobody has looked
    course: Course = field(default_factory=Course)  # what is made of it
    places: dict[int, str] = field(default_factory=dict)  # where the rows of this tick's heads lie
    now_s: float = 0.0  # the server's time at the last look, in epoch seconds
    more: bool = False  # the last look didn't see all that is new: the next should not wait
    notices: bool = False  # it saw notices of ends that tasks wait for
    charged: int = 0  # the highest number of a charge seen
    _charges: set[int] = field(default_factory=set)  # charged, still to be deleted
    _known: set[int] = field(default_factory=set)  # flows in line, still to be marked
    _held: dict[str, tuple[float, Mapping[int, str]]] = field(default_factory=dict)  # by pool: when, why by flow
    _forgotten: dict[tuple[str, ClockKey], None] = field(default_factory=dict)  # clocks still to be deleted
    _used: dict[str, tuple[int, float]] = field(default_factory=dict)  # by kind: tasks, seconds

    def begin(self, rows: LineRows) -> None:
        """Take what a new leader reads, page by page. Into an empty memory."""
        for pool in rows.clocks.keys() | rows.credits.keys():
            self.line(pool).load(rows.clocks.get(pool, ()), rows.credits.get(pool, ()))
        for known in sorted(rows.flows, key=_number):
            self._add(known)

    def line(self, pool: str) -> Line:
        """Return the line of a pool."""
        found = self.lines.get(pool)
        if found is None:
            found = self.lines[pool] = Line(pool, self.owners)
        return found

    def learn(self, seen: InUse) -> None:
        """Take what is new since the last tick: charges of what ended, then flows that nobody knew."""
        self.now_s = seen.now_s
        self.notices = seen.notices
        self.more = len(seen.flows) >= FLOWS_AT_ONCE or len(seen.charges) >= CHARGES_AT_ONCE
        for number, pool, charge in seen.charges:
            if number in self._charges:
                continue
            self.line(pool).charge(charge)
            self._charges.add(number)
            self.charged = max(self.charged, number)
            if charge.n:
                n, slot_s = self._used.get(charge.kind, (0, 0.0))
                self._used[charge.kind] = (n + charge.n, slot_s + charge.slot_s)
        for known in sorted(seen.flows, key=_number):
            self._add(known)
            self._known.add(known.flow.id)

    def own(self, tenants: Mapping[int, TenantFacts]) -> None:
        """Take caps and weights: of these tenants as they are, of all others as a new tenant has them."""
        for tenant in self.owners.tenants.keys() - tenants.keys():
            self.owners.set_tenant(tenant)
        for tenant, facts in tenants.items():
            self.owners.set_tenant(tenant, cap=facts.cap, weight=facts.weight, degrade=facts.degrade)
        if len(self.owners.runs) > RUNS_KEPT:
            runs = {flow.run for line in self.lines.values() for flow in line.flows.values()}
            if len(self.owners.runs) > len(runs) + RUNS_KEPT:
                self.owners.runs = {run: cap for run, cap in self.owners.runs.items() if run in runs}

    def see(self, outlook: Outlook) -> None:
        """Take what was read of resources; any thread may bring it, the next tick goes by it."""
        self.outlook = outlook

    def hold(self, plan: Plan) -> None:
        """Keep what a plan says of flows that it gave nothing, for who tells why."""
        self._held[plan.pool] = (time.monotonic(), plan.held)

    def held_lately(self) -> dict[int, str]:
        """Return what the last plans said of flows (by id). Any thread may ask: what a plan said never changes."""
        now_s = time.monotonic()
        lately = [held for at_s, held in list(self._held.values()) if now_s - at_s <= HELD_FOR_S]
        return {flow: why for held in lately for flow, why in held.items()}

    def full(self) -> bool:
        """Return whether so much is to be written that the next look would find nothing new."""
        return len(self._known) >= FLOWS_AT_ONCE or len(self._charges) >= CHARGES_AT_ONCE // 2

    def look_from(self, now_s: float, every_s: float) -> int:
        """Return after which charge to look: all of them now and then, so that none that came late is missed."""
        if now_s - self.looked_whole_s >= every_s:
            self.looked_whole_s = now_s
            return 0
        return max(0, self.charged - LATE_CHARGES)

    def moved(self) -> Moved:
        """Return what the next commit must write, once."""
        changes: dict[str, Changes] = {}
        for pool, line in self.lines.items():
            one = line.changes()
            if one.clocks or one.credits:
                changes[pool] = one
            self._forgotten |= dict.fromkeys((pool, key) for key in one.forgotten)
        for pool, one in changes.items():  # who was forgotten came back
            for row in one.clocks:
                self._forgotten.pop((pool, (row.priority, row.tenant, row.run)), None)
        charges, known = tuple(sorted(self._charges)), tuple(sorted(self._known))
        self._charges.clear()
        self._known.clear()
        return Moved(changes=changes, charges=charges, known=known)

    def used(self) -> list[Used]:
        """Return how long tasks took since this was last asked, once."""
        found = [Used(kind, n, slot_s / n) for kind, (n, slot_s) in sorted(self._used.items())]
        self._used.clear()
        return found

    def forgotten(self) -> list[tuple[str, ClockKey]]:
        """Return the clocks to delete, once."""
        found = list(self._forgotten)
        self._forgotten.clear()
        return found

    def forget_flows(self, pool: str, flows: Iterable[int]) -> None:
        """Take flows out of line: their rows are gone."""
        gone = set(flows)
        self.line(pool).forget(gone)
        self._known -= gone

    def _add(self, known: KnownFlow) -> None:
        facts = known.tenant
        self.owners.set_tenant(known.flow.tenant, cap=facts.cap, weight=facts.weight, degrade=facts.degrade)
        if known.flow.run:
            self.owners.set_run(known.flow.run, known.run_cap)
        self.line(known.pool).add(known.flow, known.since_s)


def _number(known: KnownFlow) -> int:
    return known.flow.id
