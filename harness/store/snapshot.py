"""What the dispatcher looks at: facts of one tick, bounded by what it may release, never by the backlog.

A new leader reads its whole line once (`line`); from then on only what is new comes with each tick (`in_use`).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from harness.policy.accounts import Charge, ClockRow, CreditRow
from harness.policy.flow import Asked, FlowFacts, Head
from harness.policy.owners import NEW, TenantFacts
from harness.policy.pressure import Level
from harness.policy.ramp import WHOLE_AFTER_S
from harness.policy.room import InFlight
from harness.store import sql
from harness.store.clocks import ZOMBIE_CHARGED_S
from harness.store.database import Connection
from harness.store.sessions import DEAD_AFTER_S

CHARGES_AT_ONCE = 1000  # 0.5 MB at most; what is left is read by the next tick
FLOWS_AT_ONCE = 500
FLOWS_A_PAGE = 20_000  # half a second on a busy machine: the lead is renewed between two


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownFlow:
    """A flow with what its owners may have in flight. `run_cap`: None, no cap of its own.

    `since_s`: since when its first task may run, as far as is known (epoch seconds).
    """

    pool: str
    flow: FlowFacts
    tenant: TenantFacts
    run_cap: int | None
    since_s: float


@dataclass(kw_only=True, slots=True)
class InUse:
    """The time of the look (the server's, in epoch seconds); slots by pool (of live, undrained sessions); leases.

    `level`: of pressure. `flight`: what is in flight. `charges`: of leases that ended, (id, pool, charge). `flows`:
    that no leader knows yet. `notices`: of ends that tasks wait for, there are some (transitions.rouse).
    """

    now_s: float = 0.0
    level: Level = Level.NORMAL
    slots: dict[str, int] = field(default_factory=dict)
    flight: list[InFlight] = field(default_factory=list)
    charges: list[tuple[int, str, Charge]] = field(default_factory=list)
    flows: list[KnownFlow] = field(default_factory=list)
    notices: bool = False


@dataclass(kw_only=True, slots=True)
class LineRows:
    """What a line is made of: flows, and clocks and credits by pool."""

    flows: list[KnownFlow] = field(default_factory=list)
    clocks: dict[str, list[ClockRow]] = field(default_factory=dict)
    credits: dict[str, list[CreditRow]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scopes:
    """Pauses as (scope, key, source, reason), quotas as (tenant, scope, name, cap), estimates in seconds by kind.

    `ramps`: pauses that ended a moment ago, as (scope, key, seconds since). `tenants`: that aren't as new ones are.
    """

    pauses: tuple[tuple[str, str, str, str], ...]
    quotas: tuple[tuple[int, str, str, int], ...]
    estimates: dict[str, float]
    ramps: tuple[tuple[str, str, float], ...] = ()
    tenants: dict[int, TenantFacts] = field(default_factory=dict)


def in_use(connection: Connection, *, charged: int = 0) -> InUse:
    """Return what a tick begins with. `charged`: charges up to this id are left out."""
    found = InUse()
    cursor = connection.execute(
        sql.load("snapshot/in_use"),
        {
            "dead_after_s": DEAD_AFTER_S,
            "zombie_s": ZOMBIE_CHARGED_S,
            "charged": charged,
            "charges": CHARGES_AT_ONCE,
            "flows": FLOWS_AT_ONCE,
        },
    )
    for what, pool, n, via, tenant, run, text, members, priority, lane, number, x, y, z, ends in cursor:
        # The time comes first.
        if what == "flight":
            found.flight.append(
                InFlight(
                    pool=pool,
                    via=via,
                    tenant=tenant,
                    run=run,
                    signature=text,
                    leases=n,
                    members=members,
                    priority=priority,
                    lane=lane,
                    overrun_s=x,
                    cost=y,
                    ends_s=tuple(ends or ()),
                )
            )
        elif what == "charge":
            charge = Charge(
                priority=priority,
                tenant=tenant,
                run=run,
                lane=lane,
                owed_s=y,
                kind=text,
                n=n,
                slot_s=x,
                cost_s=z,
            )
            found.charges.append((number, pool, charge))
        elif what == "flow":
            flow = FlowFacts(id=number, priority=priority, tenant=tenant, run=run, signature=text)
            found.flows.append(
                KnownFlow(pool=pool, flow=flow, tenant=TenantFacts(n, x, y > 0), run_cap=members, since_s=found.now_s)
            )
        elif what == "slots":
            found.slots[pool] = n
        else:
            found.now_s, found.level, found.notices = x, Level(n or 0), y > 0
    return found


def line(connection: Connection, *, epoch: int, after: int = 0, flows: int = FLOWS_A_PAGE) -> LineRows:
    """Return flows, by id, and with the first page (`after` 0) all clocks and credits. Nothing under another epoch.

    From here on the flows are known. The page after the last one has none.
    """
    found = LineRows()
    cursor = connection.execute(sql.load("snapshot/line"), {"epoch": epoch, "after": after, "flows": flows})
    for what, pool, number, tenant, run, signature, flow, cap, run_cap, x, y, at_s, mean_s, square_s, v in cursor:
        if what == "flow":
            facts = FlowFacts(id=flow, priority=number, tenant=tenant, run=run, signature=signature)
            known = KnownFlow(pool=pool, flow=facts, tenant=TenantFacts(cap, x, at_s > 0), run_cap=run_cap, since_s=y)
            found.flows.append(known)
        elif what == "clock":
            found.clocks.setdefault(pool, []).append(ClockRow(number, tenant, run, x, y, at_s))
        else:
            found.credits.setdefault(pool, []).append(CreditRow(number, x, y, mean_s, square_s, v, at_s))
    return found


def scopes(connection: Connection) -> Scopes:
    """Return pauses, ramps, quotas, estimates, and the tenants that aren't as a new one is."""
    row = connection.execute(
        sql.load("snapshot/scopes"), {"ramp_s": WHOLE_AFTER_S, "cap": NEW.cap, "weight": NEW.weight}
    ).fetchone()
    assert row is not None
    found = row[0]
    return Scopes(
        tuple((p[0], p[1], p[2], p[3]) for p in found["pauses"]),
        tuple((q[0], q[1], q[2], q[3]) for q in found["quotas"]),
        dict(found["estimates"]),
        tuple((r[0], r[1], float(r[2])) for r in found["ramps"]),
        {tenant: TenantFacts(cap, float(weight), degrade) for tenant, cap, weight, degrade in found["tenants"]},
    )


def leases_by_scope(connection: Connection) -> list[tuple[str, int, int, int, int]]:
    """Return the slots held, as (pool, priority, tenant, run, leases)."""
    cursor = connection.execute(sql.load("snapshot/leases_by_scope"))
    return [(row[0], row[1], row[2], row[3], row[4]) for row in cursor]


def heads(
    connection: Connection, asked: Asked, flows: Mapping[int, FlowFacts], places: dict[int, str] | None = None
) -> dict[int, Sequence[Head]]:
    """Answer a look: the first tasks of each flow asked, oldest first; () of one that is empty.

    `flows`: those asked, by id. Where each head's row lies is noted in `places` (by task), for the release.
    """
    wanted = [
        (flow.priority, flow.tenant, flow.run, flow.signature, heads)
        for flow, heads in zip([flows[number] for number in asked.flows], asked.heads, strict=True)
    ]
    cursor = connection.execute(
        sql.load("snapshot/heads"),
        {"pool": asked.pool, "flows": json.dumps(wanted), "lost_below": asked.lost_below},
    )
    found: dict[int, list[Head]] = {number: [] for number in asked.flows}
    for at, task, kind, single, lost_starts, ready_s, degrade, place in cursor:
        if task is not None:
            found[asked.flows[at - 1]].append(Head(task, kind, single, lost_starts, ready_s, degrade))
            if places is not None:
                places[task] = place
    return {number: tuple(tasks) for number, tasks in found.items()}
