"""The line of one pool: its flows in the order of rule 2 and rule 12, the clocks that order them, and the credits.

The leader holds it in memory, from rows (accounts.py) that outlive it. Tenants stand in order of virtual time, by class
and resource signature, so that a signature without room is skipped as a whole; a tenant's runs stand likewise. A plan
reads it and changes nothing; `apply`, `charge`, `refund`, `add`, `forget` and `away` do.

A(ctivation). A tenant that comes back to a class begins no earlier than the class's virtual time V: no credit is
   hoarded. V is the clock of the tenant that has had least of those that may go: who is blocked doesn't hold it back,
   and loses nothing. A run begins no earlier than the tenant's other runs.
C(harge). The estimate at release, what is beyond or short of it at settle, each over the weight. No lag cap (rule 9).

Invariants: a flow stands in the order exactly while it is known; what only time changes isn't written.
"""

import math
from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator
from itertools import islice

from harness.policy import lanes
from harness.policy.accounts import Changes, Charge, ClockKey, ClockRow, CreditRow
from harness.policy.flow import FlowFacts, is_large
from harness.policy.lanes import AGED, EST_WEIGHT, LANES, MEAN_WEIGHT, Account, mean
from harness.policy.owners import Owners
from harness.policy.plan import Pick, Plan, Reserved
from harness.policy.starts import Starts

ACTIVE_S = 600.0  # a tenant whose work was seen so long ago may come back any moment (rule 8)
FORGET_MOST = 100  # clocks that one commit forgets
AGES = (2, 3)  # classes whose tasks may age

Order = list[tuple[float, int]]  # (virtual time, tenant or run), sorted
Orders = dict[str, Order]  # by signature


class Clock:
    """One clock. `floor`: the virtual time of a tenant's runs."""

    __slots__ = ("at_s", "floor", "g", "v")

    def __init__(self, v: float = 0.0, g: float = 0.0, at_s: float = 0.0) -> None:
        self.v, self.g, self.at_s, self.floor = v, g, at_s, 0.0


class Run:
    """A run with flows in one class; number 0: the tenant's singles."""

    __slots__ = ("clock", "flows", "id")

    def __init__(self, number: int, clock: Clock) -> None:
        self.id = number
        self.clock = clock
        self.flows: dict[str, FlowFacts] = {}


class Tenant:
    """A tenant with flows in one class: its runs, and the order of those that aren't singles."""

    __slots__ = ("clock", "id", "orders", "runs", "signatures", "weight")

    def __init__(self, number: int, clock: Clock, weight: float) -> None:
        self.id = number
        self.weight = weight
        self.clock = clock
        self.runs: dict[int, Run] = {}
        self.orders: Orders = {}
        self.signatures: dict[str, int] = {}  # how many of its flows need it


class Class:
    """All flows of one priority. `oldest`: flows by since when their first task may run, where tasks age."""

    __slots__ = ("_version", "_weight", "oldest", "orders", "tenants")

    def __init__(self) -> None:
        self.tenants: dict[int, Tenant] = {}
        self.orders: Orders = {}
        self.oldest: Orders = {}
        self._weight, self._version = 0.0, -1

    def weight(self, owners: Owners) -> float:
        """Return the sum of the weights of all that have a backlog."""
        if self._version != owners.version:
            for tenant in self.tenants.values():
                tenant.weight = owners.weight(tenant.id)
            self._weight, self._version = sum(tenant.weight for tenant in self.tenants.values()), owners.version
        return self._weight

    def count(self, weight: float) -> None:
        """Count one more, or one less, with a backlog."""
        self._weight = self._weight + weight if self.tenants else 0.0


class Line:
    """See the module."""

    def __init__(self, pool: str, owners: Owners) -> None:
        self.pool = pool
        self.owners = owners
        self.classes = (Class(), Class(), Class(), Class())
        self.flows: dict[int, FlowFacts] = {}
        self.accounts = [Account() for _ in range(LANES)]
        self.waited = [False] * LANES  # a lane had a backlog when its credit was last counted
        self.starts = Starts()
        self.reserved: dict[str, Reserved] = {}  # resources that the last plan keeps for somebody
        self.large = 0  # flows whose tasks may have to reserve
        self.bundled = False  # the last look saw work that shares slots
        self.slots = 0  # of the pool, when it was last planned
        self.urgent_s = -math.inf  # when P0 was last seen
        self.at_s: float | None = None  # when the credits were last counted; None: never
        self._clocks: dict[ClockKey, Clock] = {}
        self._since: dict[int, float] = {}
        self._touched: set[ClockKey] = set()
        self._paid: set[int] = set()
        self._idle: dict[ClockKey, None] = {}
        self._away: set[int] = set()
        self._last: list[tuple[float, int]] = []  # the two tenants last seen with work

    def __len__(self) -> int:
        return len(self.flows)

    # -- from and to rows

    def load(self, clocks: Iterable[ClockRow], credits: Iterable[CreditRow]) -> None:
        """Begin with what is written. Before any flow is added."""
        for row in credits:
            self.accounts[row.lane] = Account(row.credit_s, row.est_s, row.mean_s, row.square_s, row.v)
            self.at_s = row.at_s if self.at_s is None else max(self.at_s, row.at_s)
        floors: dict[ClockKey, float] = {}
        for one in clocks:
            key = (one.priority, one.tenant, one.run)
            self._clocks[key] = Clock(one.v, one.g, one.at_s)
            self._idle[key] = None
            if one.run:
                whose = (one.priority, one.tenant, 0)
                floors[whose] = min(floors.get(whose, one.v), one.v)
            else:
                self._saw(one.tenant, one.at_s)
        for key, floor in floors.items():
            self._clock(key).floor = floor

    def changes(self) -> Changes:
        """Return what was touched since the last call."""
        clocks = tuple(self._row(key) for key in sorted(self._touched) if key in self._clocks)
        paid = tuple(self._credit(lane) for lane in sorted(self._paid))
        return Changes(clocks, paid, self.tidy())

    def tidy(self) -> tuple[ClockKey, ...]:
        """Take what was touched as written; forget clocks that say nothing any more, and return which."""
        self._touched.clear()
        self._paid.clear()
        return tuple(self._forget_idle()) if self._idle else ()

    def dump(self) -> tuple[list[ClockRow], list[CreditRow]]:
        """Return all rows."""
        return [self._row(key) for key in sorted(self._clocks)], [self._credit(lane) for lane in range(LANES)]

    def clocks(self) -> dict[ClockKey, float]:
        """Return all virtual times."""
        return {key: clock.v for key, clock in self._clocks.items()}

    # -- flows come and go

    def add(self, flow: FlowFacts, since_s: float) -> None:
        """Put a flow in line, if it isn't there. `since_s`: since when its first task may run, about."""
        if flow.id in self.flows:
            return
        self.flows[flow.id] = flow
        of_class = self.classes[flow.priority]
        tenant = of_class.tenants.get(flow.tenant)
        if tenant is None:
            clock = self._clock((flow.priority, flow.tenant, 0))
            clock.v = max(clock.v, self.accounts[flow.priority].v)
            tenant = of_class.tenants[flow.tenant] = Tenant(flow.tenant, clock, self.owners.weight(flow.tenant))
            of_class.count(tenant.weight)
        run = tenant.runs.get(flow.run)
        if run is None:
            run = tenant.runs[flow.run] = Run(flow.run, self._run_clock(flow, tenant))
        run.flows[flow.signature] = flow
        if flow.run:
            insort(tenant.orders.setdefault(flow.signature, []), (run.clock.v, flow.run))
        number = tenant.signatures.get(flow.signature, 0)
        tenant.signatures[flow.signature] = number + 1
        if not number:
            insort(of_class.orders.setdefault(flow.signature, []), (tenant.clock.v, flow.tenant))
        self._since[flow.id] = since_s
        self.large += bool(flow.signature) and is_large(flow.signature)
        if flow.priority in AGES:
            insort(of_class.oldest.setdefault(flow.signature, []), (since_s, flow.id))

    def forget(self, flows: Iterable[int]) -> None:
        """Take flows out: they are gone. Who isn't known is passed over."""
        for number in flows:
            flow = self.flows.pop(number, None)
            if flow is None:
                continue
            of_class = self.classes[flow.priority]
            tenant = of_class.tenants[flow.tenant]
            run = tenant.runs[flow.run]
            del run.flows[flow.signature]
            if flow.run:
                _remove(tenant.orders, flow.signature, (run.clock.v, flow.run))
            if not run.flows:
                del tenant.runs[flow.run]
                if flow.run:
                    self._idle[flow.priority, flow.tenant, flow.run] = None
            left = tenant.signatures[flow.signature] - 1
            tenant.signatures[flow.signature] = left
            if not left:
                del tenant.signatures[flow.signature]
                self.starts.gone((flow.priority, flow.tenant, flow.signature))
                _remove(of_class.orders, flow.signature, (tenant.clock.v, flow.tenant))
            if not tenant.runs:
                del of_class.tenants[flow.tenant]
                of_class.count(-tenant.weight)
                self._idle[flow.priority, flow.tenant, 0] = None
                self._saw(flow.tenant, self.at_s or 0.0)
            since_s = self._since.pop(number)
            self.large -= bool(flow.signature) and is_large(flow.signature)
            if flow.priority in AGES:
                _remove(of_class.oldest, flow.signature, (since_s, number))

    def since(self, flow: int) -> float:
        """Return since when a flow's first task may run, as far as is known."""
        return self._since[flow]

    def others_than(self, tenant: int, now_s: float) -> bool:
        """Return whether another tenant has work here, or had a moment ago (rule 8)."""
        for of_class in self.classes:
            if len(of_class.tenants) > 1 or (of_class.tenants and tenant not in of_class.tenants):
                return True
        return any(other != tenant and now_s - at_s <= ACTIVE_S for at_s, other in self._last)

    # -- clocks move

    def charge(self, charge: Charge) -> None:
        """Charge what a task used beyond its estimate, or give back what it didn't. Once for each charge."""
        self._pay(charge.priority, charge.tenant, charge.run, charge.lane, charge.owed_s)
        if charge.n:
            one_s = charge.slot_s / charge.n
            account, pool = self.accounts[charge.priority], self.accounts[AGED]
            account.est_s = mean(account.est_s, charge.cost_s / charge.n, EST_WEIGHT, charge.n)
            pool.mean_s = mean(pool.mean_s, one_s, MEAN_WEIGHT, charge.n)
            pool.square_s = mean(pool.square_s, one_s * one_s, MEAN_WEIGHT, charge.n)
            self._paid.add(charge.priority)
            self._paid.add(AGED)

    def apply(self, plan: Plan) -> None:
        """Charge a plan's picks, and keep what it found out. Raises: ValueError if it is another pool's."""
        if plan.pool != self.pool:
            raise ValueError(f"a plan of pool {plan.pool} was given to the line of {self.pool}")
        for account, credit_s in zip(self.accounts, plan.credits_s, strict=True):
            account.credit_s = credit_s
        self.waited = [*plan.waiting]
        self.at_s, self.slots = plan.now_s, plan.slots
        if self.classes[0].tenants:
            self.urgent_s = plan.now_s
        self.bundled = plan.bundled
        kept = {one.flow.id for one in self.reserved.values()} if self.reserved else ()
        self.reserved = dict(plan.reserved)
        for priority, v in plan.lowest.items():
            if v > self.accounts[priority].v:
                self.accounts[priority].v = v
                self._paid.add(priority)
        for (priority, number), floor in plan.floors.items():
            clock = self._clock((priority, number, 0))
            clock.floor = max(clock.floor, floor)
        for pick in plan.picks:
            flow = pick.flow
            account = self.accounts[flow.priority]
            account.est_s = account.est_s or pick.est_s * pick.cost / len(pick.tasks)
            self._pay(flow.priority, flow.tenant, flow.run, pick.lane, pick.est_s * pick.cost)
            self._saw(flow.tenant, plan.now_s)
            if pick.large:
                large = (flow.priority, flow.tenant, flow.signature)
                self.starts.note(large, plan.now_s, gathered=flow.id in kept)
        known = self._since
        for number, since_s in plan.since:
            if known.get(number, since_s) != since_s:
                self._age(number, since_s)

    def refund(self, pick: Pick) -> None:
        """Take a pick's charge back: it was not released."""
        flow = pick.flow
        self._pay(flow.priority, flow.tenant, flow.run, pick.lane, -pick.est_s * pick.cost)

    def away(self, tenants: Collection[int]) -> None:
        """Note who is paused now. Who isn't any more gets no credit for the time away."""
        if not tenants and not self._away:
            return
        back, self._away = self._away.difference(tenants), set(tenants)
        for number in sorted(back):
            for priority, of_class in enumerate(self.classes):
                tenant = of_class.tenants.get(number)
                if tenant is not None:
                    v = max(tenant.clock.v, self.accounts[priority].v)
                    self._set((priority, tenant.id, 0), tenant.clock, v)

    # -- inside

    def _pay(self, priority: int, tenant: int, run: int, lane: int, cost_s: float) -> None:
        key = (priority, tenant, 0)
        clock = self._clock(key)
        known = self._set(key, clock, clock.v + cost_s / self.owners.weight(tenant))
        if run:
            key = (priority, tenant, run)
            of_run = self._clock(key, clock.floor)
            self._set(key, of_run, of_run.v + cost_s)
            clock.g = max(0.0, clock.g - cost_s)
        elif known is not None and (len(known.runs) > 1 or 0 not in known.runs):
            clock.g = max(0.0, clock.g + cost_s)
        if lane != lanes.NO_LANE:
            account = self.accounts[lane]
            account.credit_s = max(account.credit_s - cost_s, lanes.least(lane, self.slots, self.accounts))
            self._paid.add(lane)

    def _set(self, key: ClockKey, clock: Clock, v: float) -> Tenant | None:
        """Move a clock, and whoever stands in the order by it. Returns the tenant, if it has a backlog."""
        priority, tenant, run = key
        self._touched.add(key)
        clock.at_s = self.at_s or 0.0
        before, clock.v = clock.v, v
        of_class = self.classes[priority]
        known = of_class.tenants.get(tenant)
        if known is None or before == v:
            return known
        if not run:
            for signature in known.signatures:
                _move(of_class.orders[signature], (before, tenant), (v, tenant))
        elif (of_run := known.runs.get(run)) is not None:
            for signature in of_run.flows:
                _move(known.orders[signature], (before, run), (v, run))
        return known

    def _age(self, number: int, since_s: float) -> None:
        before_s, self._since[number] = self._since[number], since_s
        if (flow := self.flows[number]).priority in AGES:
            order = self.classes[flow.priority].oldest[flow.signature]
            _move(order, (before_s, number), (since_s, number))

    def _clock(self, key: ClockKey, begin: float | None = None) -> Clock:
        clock = self._clocks.get(key)
        if clock is None:
            clock = self._clocks[key] = Clock(self.accounts[key[0]].v if begin is None else begin)
            self._idle[key] = None
        return clock

    def _run_clock(self, flow: FlowFacts, tenant: Tenant) -> Clock:
        if not flow.run:
            return tenant.clock
        first = [order[0][0] for order in tenant.orders.values() if order]
        begin = min(first) if first else tenant.clock.floor
        clock = self._clock((flow.priority, flow.tenant, flow.run), begin)
        clock.v = max(clock.v, begin)
        return clock

    def _saw(self, tenant: int, at_s: float) -> None:
        last = self._last
        if last and last[0][1] == tenant:
            last[0] = (max(at_s, last[0][0]), tenant)
        else:
            self._last = [(at_s, tenant), *last[:1]]

    def _row(self, key: ClockKey) -> ClockRow:
        clock = self._clocks[key]
        return ClockRow(*key, clock.v, clock.g, clock.at_s)

    def _credit(self, lane: int) -> CreditRow:
        one = self.accounts[lane]
        return CreditRow(lane, one.credit_s, one.est_s, one.mean_s, one.square_s, one.v, self.at_s or 0.0)

    def _forget_idle(self) -> Iterator[ClockKey]:
        """Forget clocks that say nothing any more: of who has no backlog and would begin at V, or later."""
        for key in list(islice(self._idle, FORGET_MOST)):
            priority, tenant, run = key
            del self._idle[key]
            known = self.classes[priority].tenants.get(tenant)
            clock = self._clocks.get(key)
            if clock is None or (known is not None and (not run or run in known.runs)):
                continue
            owner = self._clocks.get((priority, tenant, 0)) if run else None
            beyond = clock.v > (owner.floor if owner and known else self.accounts[priority].v)
            if beyond if not run else (known is not None and beyond):
                self._idle[key] = None  # it owes something still: look again later
            else:
                del self._clocks[key]
                yield key


def _move(order: Order, before: tuple[float, int], after: tuple[float, int]) -> None:
    at = bisect_left(order, before)
    del order[at]
    insort(order, after, at if after > before else 0)


def _remove(orders: Orders, signature: str, entry: tuple[float, int]) -> None:
    order = orders[signature]
    del order[bisect_left(order, entry)]
    if not order:
        del orders[signature]
