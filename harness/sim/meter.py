"""What is measured while a world runs: waits, shares, use, fairness in windows. It changes nothing that it watches.

Waits are those of first starts, from ready to claim, of tasks that became ready in the measured time. Shares, use and
windows cover the measured time only. Slot-seconds are those of leases, from release on: a slot is taken then.
"""

from array import array
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from harness.policy.flow import needs
from harness.sim.ledger import Ledger, Reading, between
from harness.sim.rows import Lease, Task, Tenant

WaitKey = tuple[str, str, str, int, str]  # group, tenant ("" when they are many), pool, priority, kind
FEW_TENANTS = 200  # up to so many, waits are kept by tenant; beyond, by group


@dataclass(slots=True)
class Use:
    """Something with a capacity, over time. `waiting`: tasks that want it now."""

    capacity: int
    used: int = 0
    waiting: int = 0
    since_s: float = 0.0
    used_s: float = 0.0
    capacity_s: float = 0.0
    wanted_used_s: float = 0.0
    wanted_capacity_s: float = 0.0

    def advance(self, now_s: float) -> None:
        """Add up the time since the last change."""
        passed = now_s - self.since_s
        if passed > 0:
            self.since_s = now_s
            self.used_s += self.used * passed
            self.capacity_s += self.capacity * passed
            if self.waiting:
                self.wanted_used_s += self.used * passed
                self.wanted_capacity_s += self.capacity * passed

    def begin(self, now_s: float) -> None:
        """Forget what was."""
        self.since_s = now_s
        self.used_s = self.capacity_s = self.wanted_used_s = self.wanted_capacity_s = 0.0


@dataclass(slots=True)
class Line:
    """The tasks of one kind. `since_s`: the last start, or when some began to wait; `gap_s`: the longest such time."""

    waiting: int = 0
    since_s: float = 0.0
    gap_s: float = 0.0


@dataclass(slots=True)
class Account:
    """One tenant in one pool. `area_s`: waiting tasks x seconds of this step; `dry`: it had nothing waiting once.

    `past`: the same of the last steps, as many as make a window.
    """

    tenant: Tenant
    past: deque[tuple[float, float, bool]]
    waiting: int = 0
    since_s: float = 0.0
    area_s: float = 0.0
    used_s: float = 0.0
    dry: bool = True


@dataclass(slots=True)
class Windows:
    """Jain's index of one pool, by window: of slot-seconds over weight among the always backlogged, of satisfaction."""

    slot_seconds: list[float] = field(default_factory=list)
    satisfaction: list[float] = field(default_factory=list)


class Meter:
    """See the module. The driver sets `now_s` before anything happens, and calls begin, window and finish."""

    def __init__(
        self, *, pools: Mapping[str, int], resources: Mapping[str, int], by_tenant: bool, steps: int = 1
    ) -> None:
        """`by_tenant`: keep waits by tenant; `steps`: calls of `window` that make a window."""
        self.now_s = 0.0
        self.from_s = 0.0
        self.until_s = float("inf")
        self.pools = {pool: Use(n) for pool, n in pools.items()}
        self.resources = {name: Use(n) for name, n in resources.items()}
        self.waits: dict[WaitKey, array[float]] = {}
        self.longest_wait_s = [0.0] * 4
        self.starts = {pool: [0] * 4 for pool in pools}
        self.slot_s = {pool: [0.0] * 4 for pool in pools}
        self.windows: dict[str, Windows] = {pool: Windows() for pool in pools}
        self.kinds: dict[str, Line] = {}
        self.ledger = Ledger()
        self.used: Reading = {}  # in the measured time
        self.over = False
        self._began: Reading = {}
        self._steps = steps
        self._by_tenant = by_tenant
        self._accounts: dict[tuple[str, int], Account] = {}
        self._window_s = 0.0
        self._ended = 0  # steps

    # -- told by the world

    def ready(self, task: Task) -> None:
        """A task waits for a slot."""
        account = self._account(task.pool, task.tenant)
        self._wait(account, task, 1)

    def withdrawn(self, task: Task) -> None:
        """It doesn't any more: it was cancelled."""
        self._wait(self._account(task.pool, task.tenant), task, -1)

    def taken(self, lease: Lease) -> None:
        """A slot was given to its members."""
        for task in lease.members:
            self._wait(self._account(task.pool, task.tenant), task, -1)
        line = self._line(lease.members[0].kind)
        if self.now_s - line.since_s > line.gap_s:
            line.gap_s = self.now_s - line.since_s
        line.since_s = self.now_s
        self._use(lease, 1)
        if not self.over and self.now_s >= self.from_s:
            self.starts[lease.pool][lease.priority] += len(lease.members)

    def left(self, lease: Lease) -> None:
        """The slot is free again."""
        self._use(lease, -1)
        if not self.over:
            self._add(lease)

    # -- told by the driver

    def started(self, task: Task) -> None:
        """A worker begins with a task."""
        if task.starts == 1 and self.from_s <= task.ready_s < self.until_s:
            wait_s = self.now_s - task.ready_s
            tenant = task.tenant
            key = (tenant.group, tenant.name if self._by_tenant else "", task.pool, task.priority, task.kind)
            if key not in self.waits:
                self.waits[key] = array("d")
            self.waits[key].append(wait_s)
            if wait_s > self.longest_wait_s[task.priority]:
                self.longest_wait_s[task.priority] = wait_s

    def still_waits(self, task: Task) -> None:
        """The simulation ended before a task began: its wait counts among the longest."""
        if self.from_s <= task.ready_s < self.until_s:
            p = task.priority
            self.longest_wait_s[p] = max(self.longest_wait_s[p], self.now_s - task.ready_s)

    def capacity(self, *, pool: str | None = None, resource: str | None = None, n: int) -> None:
        """A pool has other slots, a resource another capacity, from now on."""
        use = self.pools[pool] if pool is not None else self.resources[resource or ""]
        use.advance(self.now_s)
        use.capacity = n

    def begin(self, until_s: float) -> None:
        """From now on it is measured, until `until_s`."""
        self.from_s, self.until_s = self.now_s, until_s
        for use in (*self.pools.values(), *self.resources.values()):
            use.begin(self.now_s)
        self._window_s = self.now_s
        self.waits.clear()
        self.longest_wait_s = [0.0] * 4
        self.starts = {pool: [0] * 4 for pool in self.pools}
        self.slot_s = {pool: [0.0] * 4 for pool in self.pools}
        self._began = self.ledger.read(self.now_s)
        for line in self.kinds.values():
            line.since_s, line.gap_s = self.now_s, 0.0
        for account in self._accounts.values():
            account.past.clear()
        self._next_window()

    def window(self, leases: Iterable[Lease]) -> None:
        """A step ends, and with it a window: add the figures of each pool."""
        length_s = self.now_s - self._window_s
        if length_s <= 0 or self.over:
            return
        for lease in leases:
            self._add(lease)
        by_pool: dict[str, list[Account]] = {}
        for (pool, _), account in self._accounts.items():
            account.area_s += account.waiting * (self.now_s - account.since_s)
            account.since_s = self.now_s
            account.past.append((account.used_s, account.area_s, account.dry))
            if any(used_s or area_s for used_s, area_s, _ in account.past):
                by_pool.setdefault(pool, []).append(account)
        self._ended += 1
        if self._ended >= self._steps:
            for pool, accounts in by_pool.items():
                self._judge(pool, accounts, length_s * self._steps)
        self._window_s = self.now_s
        self._next_window()

    def finish(self, leases: Iterable[Lease]) -> None:
        """The measured time is over."""
        if self.over:
            return
        for lease in leases:
            self._add(lease)
        for use in (*self.pools.values(), *self.resources.values()):
            use.advance(self.now_s)
        for line in self.kinds.values():
            if line.waiting:
                line.gap_s = max(line.gap_s, self.now_s - line.since_s)
        self.used = between(self._began, self.ledger.read(self.now_s))
        self.over = True

    # -- inside

    def _account(self, pool: str, tenant: Tenant) -> Account:
        key = (pool, tenant.id)
        account = self._accounts.get(key)
        if account is None:
            account = self._accounts[key] = Account(tenant, deque(maxlen=self._steps), since_s=self.now_s)
        return account

    def _line(self, kind: str) -> Line:
        line = self.kinds.get(kind)
        if line is None:
            line = self.kinds[kind] = Line()
        return line

    def _resource(self, name: str) -> Use:
        """A resource; one that a trace's tasks need and that isn't there any more has no capacity."""
        if name not in self.resources:
            self.resources[name] = Use(0, since_s=self.now_s)
        return self.resources[name]

    def _capacity(self, resource: str) -> int:
        return self._resource(resource).capacity

    def _wait(self, account: Account, task: Task, n: int) -> None:
        now_s = self.now_s
        account.area_s += account.waiting * (now_s - account.since_s)
        account.since_s = now_s
        account.waiting += n
        if not account.waiting:
            account.dry = True
        if not self.over:
            line = self._line(task.kind)
            if not line.waiting:
                line.since_s = now_s
            line.waiting += n
            pool = self.pools[task.pool]
            if now_s > pool.since_s:
                pool.advance(now_s)
            pool.waiting += n
            if task.signature:
                for name, _ in needs(task.signature):
                    use = self._resource(name)
                    use.advance(now_s)
                    use.waiting += n

    def _use(self, lease: Lease, n: int) -> None:
        if n > 0:
            self.ledger.begin(lease, self.now_s, slots=self.pools[lease.pool].capacity, capacities=self._capacity)
        else:
            self.ledger.end(lease, self.now_s)
        if self.over:
            return
        pool = self.pools[lease.pool]
        if self.now_s > pool.since_s:
            pool.advance(self.now_s)
        pool.used += n
        if lease.signature:
            for name, number in needs(lease.signature):
                use = self._resource(name)
                use.advance(self.now_s)
                use.used += n * number

    def _add(self, lease: Lease) -> None:
        """Add what a lease used since it began, or since this window did."""
        used_s = self.now_s - max(lease.released_s, self._window_s)
        if used_s > 0:
            self._account(lease.pool, lease.tenant).used_s += used_s
            self.slot_s[lease.pool][lease.priority] += used_s

    def _next_window(self) -> None:
        for account in self._accounts.values():
            account.area_s = account.used_s = 0.0
            account.since_s = self.now_s
            account.dry = account.waiting == 0

    def _judge(self, pool: str, accounts: list[Account], length_s: float) -> None:
        windows, sums = self.windows[pool], []
        backlogged = []
        for account in accounts:
            used_s, area_s = sum(step[0] for step in account.past), sum(step[1] for step in account.past)
            sums.append((account.tenant, used_s, area_s))
            if len(account.past) == self._steps and not any(step[2] for step in account.past):
                backlogged.append(used_s / account.tenant.weight)
        if len(backlogged) >= 2:
            windows.slot_seconds.append(jain(backlogged))
        if len(sums) >= 2:
            demands = [min((used_s + area_s) / length_s, float(tenant.cap)) for tenant, used_s, area_s in sums]
            shares = water_fill(self.pools[pool].capacity, demands, [tenant.weight for tenant, _, _ in sums])
            got = [used_s / length_s for _, used_s, _ in sums]
            windows.satisfaction.append(
                jain([min(1.0, mine / share) for mine, share in zip(got, shares, strict=True) if share > 0])
            )


def jain(values: list[float]) -> float:
    """Return Jain's index: 1 when all are equal, 1/n when one has all.

    >>> jain([2.0, 2.0]), jain([1.0, 0.0, 0.0, 0.0])
    (1.0, 0.25)
    """
    squares = sum(value * value for value in values)
    return 1.0 if not squares else sum(values) ** 2 / (len(values) * squares)


def water_fill(capacity: float, demands: list[float], weights: list[float]) -> list[float]:
    """Return the max-min fair shares by weight: nobody gets more than it wants, and nothing is left that is wanted.

    >>> water_fill(10, [1.0, 20.0, 20.0], [1.0, 1.0, 2.0])
    [1.0, 3.0, 6.0]
    """
    shares = [0.0] * len(demands)
    left = float(capacity)
    weight = sum(weights)
    for i in sorted(range(len(demands)), key=lambda i: demands[i] / weights[i]):
        shares[i] = min(demands[i], left * weights[i] / weight)
        left -= shares[i]
        weight -= weights[i]
    return shares


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the value that this share of the ordered values doesn't exceed (0 when there are none).

    >>> quantile([1.0, 2.0, 3.0, 4.0], 0.5), quantile([], 0.99)
    (2.0, 0.0)
    """
    if not ordered:
        return 0.0
    return float(ordered[max(0, -(-int(share * 1e9) * len(ordered) // 10**9) - 1)])
