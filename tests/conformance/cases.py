"""Generated snapshots: what stands in the database, and in a simulated world, at one moment. Seeded, plain values."""

from dataclasses import dataclass, field
from random import Random
from typing import Any

from harness.policy.calls import Assumed
from harness.policy.outlook import Outlook
from harness.policy.resources import Live, Resource

SIGNATURES = {
    "db": ("", "", "rag:search=1"),
    "llm": ("llm:default=1", "", "llm:default=2,tool:http=1"),
    "tool_read": ("", "tool:http=1"),
}
KINDS = {"db": ("noop", "noop", "noop.single", "db.rollup"), "llm": ("llm.chat",), "tool_read": ("noop.sleep",)}


@dataclass(frozen=True, kw_only=True)
class FlowCase:
    """A flow; `heads`: (task, kind, single, lost_starts, ready ago), oldest first; `unready`: must not be seen."""

    id: int
    pool: str
    priority: int
    tenant: int
    run: int
    signature: str
    heads: tuple[tuple[int, str, bool, int, float], ...]
    unready: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class LeaseCase:
    """A lease, claimed so many seconds ago; without members it is a zombie since its estimate was over.

    `est_s`: of each member.
    """

    id: int
    pool: str
    via: str | None
    tenant: int
    run: int
    priority: int
    lane: int
    est_s: float
    cost: float
    ago_s: float
    signature: str
    members: tuple[int, ...]


@dataclass(kw_only=True)
class Case:
    """One snapshot. Tenants: id -> (cap, weight); runs: id -> (tenant, cap); slots by pool; the rest as in the tables.

    `clocks`: (pool, priority, tenant, run, v, g); `credits`: (pool, lane, credit_s, est_s, mean_s, square_s, v), both
    written so many seconds ago.
    """

    tenants: dict[int, tuple[int, float]]
    runs: dict[int, tuple[int, int | None]]
    slots: dict[str, int]
    quotas: list[tuple[int, str, str, int]]
    pauses: list[tuple[str, str]]
    ramps: list[tuple[str, str, float]]  # pauses that ended, and how many seconds ago
    estimates: dict[str, float]
    flows: list[FlowCase] = field(default_factory=list)
    leases: list[LeaseCase] = field(default_factory=list)
    clocks: list[tuple[str, int, int, int, float, float]] = field(default_factory=list)
    credits: list[tuple[str, int, float, float, float, float, float]] = field(default_factory=list)
    written_ago_s: float = 0.0
    bundled: dict[str, bool] = field(default_factory=dict)
    beyond: list[int] = field(default_factory=list)
    level: int = 0
    whole: list[int] = field(default_factory=list)  # tenants that forbid cheaper forms
    tenant_caps: dict[str, int] = field(default_factory=dict)  # of resources
    readings: list[dict[str, dict[str, Any]]] = field(default_factory=list)  # what permits said, one after the other

    def outlooks(self, taken_s: float) -> list[Outlook]:
        """What a leader was told of resources, the last at `taken_s` by its clock."""
        return [
            Outlook(
                by_task={},
                readings={name: Assumed(**said) for name, said in readings.items()},
                at_s=next(iter(readings.values()))["at_s"],
                taken_s=taken_s,
                live={
                    name: Live(resource=Resource(name=name, held="call", capacity=50, tenant_cap=cap))
                    for name, cap in self.tenant_caps.items()
                },
            )
            for readings in self.readings
        ]


def make(number: int) -> Case:
    """Make the snapshot of this number: from nothing at all to several pages of flows."""
    dice = Random(number)
    crowded = dice.random() < 0.15  # many flows that nothing can be picked from, so that pages follow each other
    caps = (0, 0, 0, 0, 0, 0, 0, 5) if crowded else (0, 1, 2, 5, 20, 1000)
    weights = (1.0, 1.0, 1.0, 2.5, 0.5)
    tenants = {
        1000 + i: (dice.choice(caps), dice.choice(weights))
        for i in range(60 if crowded else dice.choice((1, 2, 5, 30)))
    }
    runs = {
        500 + i: (dice.choice(list(tenants)), dice.choice((None, 0, 1, 3, 50))) for i in range(dice.choice((0, 1, 6)))
    }
    pools = dice.sample(sorted(SIGNATURES), 1 if crowded else dice.choice((1, 1, 2, 3)))
    case = Case(
        tenants=tenants,
        runs=runs,
        slots={pool: dice.choice((1, 2, 4, 10, 50)) for pool in pools} | {"quarantine": dice.choice((0, 1, 1, 2))},
        quotas=_quotas(dice, tenants),
        pauses=(pauses := _pauses(dice, tenants, runs, pools)),
        ramps=[
            (scope, key, dice.choice((2.0, 7.0, 12.0, 300.0)))
            for scope, key in sorted(set(_pauses(dice, tenants, runs, pools)) - set(pauses))
        ],
        estimates={"noop": dice.choice((0.0005, 0.004, 0.2))} if dice.random() < 0.5 else {},
        beyond=dice.sample(list(tenants), 1) if dice.random() < 0.2 else [],
        written_ago_s=dice.choice((0.0, 0.5, 30.0, 4000.0)),
        bundled={pool: dice.random() < 0.5 for pool in pools},
    )
    _fill(case, dice, pools, flows=400 if crowded else dice.choice((0, 1, 3, 12, 50, 120)))
    _remember(case, dice, pools)
    case.level = number % 4
    case.whole = sorted(dice.sample(list(tenants), 1)) if number % 5 == 0 else []
    _read(case, dice)
    return case


def _read(case: Case, dice: Random) -> None:
    """What permits say of resources: nothing, or two readings with whatever is there in between."""
    if dice.random() < 0.3:
        return
    for at_s in (1000.0, 1000.0 + dice.choice((0.25, 7.0, 60.0))):
        readings = {}
        for name in ("llm:default", "rag:search", "tool:http"):
            limit = dice.choice((0, 1, 2, 5, 50))
            in_flight, waiting = dice.choice((0, 0, limit)), dice.choice((0, 0, 2))
            readings[name] = {
                "at_s": at_s,
                "limit": limit,
                "proven": dice.choice((None, 0, 50)),
                "ceiling": 50,
                "in_flight": in_flight,
                "waiting": waiting,
                "waiting_p0": dice.choice((0, waiting)),
                "asked": in_flight + waiting + dice.choice((0, 0, 3)),
                "mode": dice.choice(("ramp", "hold", "drain")),
                "blocked_until_s": dice.choice((0.0, 0.0, 0.0, at_s + 900.0)),
                "breaker": (breaker := dice.choice(("closed", "closed", "closed", "open", "half_open"))),
                "breaker_until_s": dice.choice((at_s - 1.0, at_s + 900.0)) if breaker == "open" else 0.0,
                "rate_wait_s": dice.choice((0.0, 0.0, 0.2, 3.0, 900.0)),
            }
        case.readings.append(readings)
    case.tenant_caps = {"llm:default": dice.choice((0, 1, 3))} if dice.random() < 0.3 else {}


def _remember(case: Case, dice: Random, pools: list[str]) -> None:
    """Clocks of some that are there, and credits of pools that have run for a while."""
    keys = {(flow.pool, flow.priority, flow.tenant, flow.run) for flow in case.flows}
    keys |= {(lease.pool, lease.priority, lease.tenant, lease.run) for lease in case.leases}
    keys |= {(pool, priority, tenant, 0) for pool, priority, tenant, _ in keys}
    for key in sorted(keys):
        if dice.random() < 0.7:
            case.clocks.append((*key, float(dice.randrange(40)), 0.0 if key[3] else dice.choice((0.0, 9.0, 400.0))))
    for pool in pools:
        for lane in range(5) if dice.random() < 0.7 else ():
            mean_s = dice.choice((0.5, 8.0))
            # No round numbers: a credit that is spent to exactly 0 is on either side of it by the last bit of a sum.
            credit_s, est_s = dice.choice((-300.0, -2.0, 0.25, 3.0)), dice.choice((0.25, 2.0))
            case.credits.append(
                (pool, lane, credit_s + dice.random() / 9, est_s + dice.random() / 9, mean_s, 2 * mean_s**2, 10.0)
            )


def _quotas(dice: Random, tenants: dict[int, tuple[int, float]]) -> list[tuple[int, str, str, int]]:
    names = (("pool", "db"), ("pool", "llm"), ("resource", "llm:default"), ("resource", "rag:search"))
    drawn: dict[tuple[int, str, str], int] = {}
    for _ in range(dice.choice((0, 0, 3))):
        scope, name = dice.choice(names)
        drawn[dice.choice(list(tenants)), scope, name] = dice.choice((0, 1, 3, 20))
    return [(tenant, scope, name, cap) for (tenant, scope, name), cap in drawn.items()]


def _pauses(
    dice: Random, tenants: dict[int, tuple[int, float]], runs: dict[int, tuple[int, int | None]], pools: list[str]
) -> list[tuple[str, str]]:
    found = []
    for _ in range(dice.choice((0, 0, 0, 1, 2))):
        scope = dice.choice(("pool", "priority", "pool_priority", "tenant", "run"))
        key = {
            "pool": dice.choice(pools),
            "priority": f"p{dice.randrange(4)}",
            "pool_priority": f"{dice.choice(pools)}.p{dice.randrange(4)}",
            "tenant": str(dice.choice(list(tenants))),
            "run": str(dice.choice(list(runs) or [0])),
        }[scope]
        found.append((scope, key))
    return found


def _fill(case: Case, dice: Random, pools: list[str], *, flows: int) -> None:
    task = flow = lease = 1
    keys: set[tuple[object, ...]] = set()
    for _ in range(flows):
        pool, tenant, priority = dice.choice(pools), dice.choice(list(case.tenants)), dice.choice((0, 1, 1, 2, 2, 3))
        run = dice.choice([0, 0, *(number for number, (whose, _) in case.runs.items() if whose == tenant)])
        signature = dice.choice(SIGNATURES[pool])
        key = (pool, priority, tenant, run, signature)
        if key in keys:
            continue
        keys.add(key)
        heads = []
        for _ in range(dice.choice((0, 1, 1, 2, 7, 60 if flows < 400 else 2))):
            lost = dice.choice((0, 0, 0, 0, 0, 1, 2))
            ago_s = dice.choice((0.5, 20.0, 350.0, 700.0, 7000.0))
            heads.append((task, dice.choice(KINDS[pool]), dice.random() < 0.1, lost, ago_s))
            task += 1
        case.flows.append(
            FlowCase(
                id=flow,
                pool=pool,
                priority=priority,
                tenant=tenant,
                run=run,
                signature=signature,
                heads=tuple(heads),
                unready=tuple(range(task, task + dice.choice((0, 0, 2)))),
            )
        )
        task += 2
        flow += 1
    for _ in range(dice.choice((0, 0, 3, 12))):
        pool, tenant = dice.choice(pools), dice.choice(list(case.tenants))
        run = dice.choice([0, 0, *(number for number, (whose, _) in case.runs.items() if whose == tenant)])
        n = dice.choice((0, 1, 1, 1, 4))
        case.leases.append(
            LeaseCase(
                id=lease,
                pool=pool,
                via="quarantine" if dice.random() < 0.1 else None,
                tenant=tenant,
                run=run,
                priority=(priority := dice.randrange(4)),
                lane=dice.choice((1, 1, priority, 4) if priority >= 2 else (priority,)),
                est_s=dice.choice((0.25, 2.0)),
                cost=dice.choice((1.0, 1.0, 4.5)),
                ago_s=dice.choice((0.5, 3.0, 100.0)),
                signature=dice.choice(SIGNATURES[pool]),
                members=tuple(range(task, task + n)),
            )
        )
        task += n
        lease += 1
    dice.shuffle(case.flows)
