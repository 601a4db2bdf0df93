"""The rows of a simulated world: what the tables tenant, run, task and lease hold, as far as policy asks."""

from dataclasses import dataclass

from harness.policy.errors import ErrorClass
from harness.policy.flow import FlowFacts
from harness.policy.lanes import NO_LANE
from harness.policy.lifecycle import State
from harness.policy.room import InFlight
from harness.sim.trace import TracedAttempt


@dataclass(slots=True)
class Tenant:
    """A tenant; `live`: its unfinished tasks; `in_flight`, `most_in_flight`: its members on leases, counted here.

    `exceeded`: how often it had more in flight than its cap then was, right after a release.
    """

    id: int
    name: str
    group: str
    cap: int = 1000
    weight: float = 1.0
    backlog_quota: int = 10**9
    top_priority: int = 0
    live: int = 0
    in_flight: int = 0
    most_in_flight: int = 0
    exceeded: int = 0
    degrade: bool = True


@dataclass(slots=True)
class Run:
    """A run and its fan-out cap; the rest as with Tenant."""

    id: int
    tenant: Tenant
    fanout_cap: int | None
    in_flight: int = 0
    most_in_flight: int = 0
    exceeded: int = 0


@dataclass(slots=True)
class Task:
    """A task. `replay`: what its attempts were, when it comes from a trace; `drawn`: what its first one will be,
    in slot-seconds and error, when that was drawn as it came.
    """

    id: int
    tenant: Tenant
    run: Run | None
    kind: str
    pool: str
    priority: int
    signature: str
    submitted_s: float
    ready_s: float
    state: State = State.QUEUED
    single: bool = False
    attempts_used: int = 0
    lost_starts: int = 0
    postponements: int = 0
    starts: int = 0
    replay: tuple[TracedAttempt, ...] | None = None
    drawn: tuple[float, ErrorClass | None] | None = None
    deadline_s: float | None = None


@dataclass(slots=True)
class Lease:
    """One slot, taken. `members`: tasks still to settle, in order; `n`: how many there were.

    `lane`, `est_s`, `cost`: of its pick. `due_s`: when its estimate is over, once it is claimed.
    `over`: it is.
    """

    id: int
    pool: str
    via: str | None
    tenant: Tenant
    run: Run | None
    priority: int
    signature: str
    members: list[Task]
    n: int
    flow: FlowFacts
    released_s: float
    lane: int = NO_LANE
    est_s: float = 1.0
    cost: float = 1.0
    due_s: float = 0.0
    over: bool = False
    claimed_s: float | None = None
    dead: bool = False
    zombie_since_s: float | None = None

    @property
    def where(self) -> str:
        """The pool whose workers run it."""
        return self.via or self.pool


def use_of(lease: Lease) -> InFlight:
    """Return what a lease holds."""
    flow = lease.flow
    return InFlight(
        lease.pool,
        lease.via,
        flow.tenant,
        flow.run,
        lease.signature,
        1,
        max(1, len(lease.members)),
        flow.priority,
        lease.lane,
        lease.cost,
        -lease.due_s * lease.cost if lease.over else 0.0,
        (lease.released_s + lease.est_s,) if lease.signature else (),
        lease.cost if lease.over else 0.0,
    )


def count_members(lease: Lease, n: int) -> None:
    """Count what is in flight a second time, by the tasks' own tenants: what the report checks caps with."""
    tenant, run = lease.tenant, lease.run
    _count(tenant, n, tenant.cap)
    if run is not None:
        _count(run, n, run.fanout_cap)


def _count(owner: Tenant | Run, n: int, cap: int | None) -> None:
    now = owner.in_flight = owner.in_flight + n
    if n > 0:
        if now > owner.most_in_flight:
            owner.most_in_flight = now
        if cap is not None and now > cap:
            owner.exceeded += 1
