"""From rows to places: what the door predicts waits from, and who of the deferred is let in. Pure.

The leader's side makes a prospect every second and keeps it as one row (engine.doorkeeper); every door reads that row.
It holds sums over tenants, but of those that have deferred tasks, whom the leader's side lets in one by one.

Invariants: every pool that has a worker is a place, and every resource that is open; what is let in of a tenant is at
most what it has deferred, and keeps the wait of all that are then in line within the target of their class.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from harness.policy.admission import TARGET_S
from harness.policy.flow import needs
from harness.policy.predicted import Crowd, Own, Place, level_of, wait_s, worst_s
from harness.policy.pressure.facts import Held, Limit
from harness.policy.pressure.measure import mean_hold_s, phi

EPSILON = 1e-9


@dataclass(frozen=True, slots=True)
class Waits:
    """Who waits for a place: tasks of one class. `tenant` None: of several tenants that have about as many each."""

    place: str
    priority: int
    tenant: int | None
    tasks: float
    weight: float


@dataclass(frozen=True, slots=True)
class Came:
    """Tasks of one (pool, signature, priority) that were accepted lately, a second."""

    pool: str
    signature: str
    priority: int
    a_second: float


@dataclass(frozen=True, slots=True)
class Ran:
    """Attempts of one (pool, signature) that ended lately, and how long they held their slots in all."""

    pool: str
    signature: str
    number: int
    total_s: float


@dataclass(frozen=True, slots=True)
class Deferred:
    """Tasks that wait to be let in, of one tenant; as many of them as were counted. `first`: the id of the oldest."""

    pool: str
    priority: int
    signature: str
    tenant: int
    weight: float
    tasks: int
    first: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """What stands at one moment. `service_s`: by kind, the median of lately, or the mean where little has ended."""

    slots: Mapping[str, int]
    limits: Mapping[str, Limit] = field(default_factory=dict)
    waiting: Sequence[Waits] = ()
    held: Sequence[Held] = ()
    came: Sequence[Came] = ()
    ran: Sequence[Ran] = ()
    deferred: Sequence[Deferred] = ()
    service_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Mine:
    """A tenant at the door. `tasks`: its own of the (pool, priority) in line, `alike`: of those, of the signature too;

    `fresh`: of all tenants, how many came after the places were looked at. `in_flight`, `cap`: of its tasks.
    """

    tasks: float
    alike: float
    fresh: float
    weight: float
    in_flight: int
    cap: int | None


@dataclass(frozen=True, slots=True)
class Let:
    """Let so many deferred tasks of a tenant into the line, the oldest first."""

    pool: str
    priority: int
    signature: str
    tenant: int
    tasks: int


def of_pool(pool: str) -> str:
    """Return the name of a pool as a place; a resource may be called the same."""
    return f"pool {pool}"


def of_resource(resource: str) -> str:
    """Return the name of a resource as a place."""
    return f"resource {resource}"


def of_task(pool: str, signature: str) -> tuple[tuple[str, int], ...]:
    """Return the places that a task needs, with how much of each.

    >>> of_task("llm", "llm:a=2")
    (('pool llm', 1), ('resource llm:a', 2))
    """
    return ((of_pool(pool), 1), *((of_resource(name), n) for name, n in needs(signature)))


def places(facts: Facts) -> dict[str, Place]:
    """Return the places as they stand."""
    in_use: dict[str, float] = defaultdict(float)
    held_s: dict[str, float] = defaultdict(float)
    ended: dict[str, float] = defaultdict(float)
    ended_s: dict[str, float] = defaultdict(float)
    rates: dict[str, list[float]] = defaultdict(lambda: [0.0] * 4)
    crowds: dict[str, list[list[Crowd]]] = defaultdict(lambda: [[] for _ in range(4)])
    for held in facts.held:
        for name, n in of_task(held.pool, held.signature):
            in_use[name] += n * held.leases
            held_s[name] += held.leases * held.est_s
    for ran in facts.ran:
        for name, _ in of_task(ran.pool, ran.signature):
            ended[name] += ran.number
            ended_s[name] += ran.total_s
    for came in facts.came:
        for name, n in of_task(came.pool, came.signature):
            rates[name][came.priority] += n * came.a_second
    for waits in facts.waiting:
        crowds[waits.place][waits.priority].append(Crowd(waits.tasks, waits.weight))
    return {
        name: Place(
            slots=slots,
            in_use=in_use[name],
            mean_s=mean_hold_s(ended[name], ended_s[name], in_use=in_use[name], held_s=held_s[name]),
            rates=tuple(rates[name]),
            crowds=tuple([tuple(one) for one in crowds[name]]),
        )
        for name, slots in _slots(facts, in_use)
    }


def waits_s(
    found: Mapping[str, Place], pool: str, priority: int, signature: str, mine: Mine, count: int
) -> tuple[float | None, float | None]:
    """Return how long the first and the last of `count` tasks of a tenant would wait. None: nobody can say."""
    first: list[float | None] = []
    last: list[float | None] = []
    for at, (name, n) in enumerate(of_task(pool, signature)):
        place = found.get(name)
        if place is None:
            return None, None
        ahead = mine.tasks if at == 0 else n * mine.alike
        for waits, more in ((first, 0), (last, n * (count - 1))):
            own = Own(
                ahead=ahead + more,
                weight=mine.weight,
                fresh=n * mine.fresh + more,
                in_flight=mine.in_flight,
                cap=mine.cap,
            )
            waits.append(wait_s(place, priority, own))
    return worst_s(first), worst_s(last)


def let_in(facts: Facts, found: Mapping[str, Place]) -> list[Let]:
    """Return who of the deferred is let in: as many of each tenant as keep the wait within the target of their class.

    Tenants get in up to the same level, each for its weight. Where no worker runs nobody is: their time lets them in.
    """
    groups: dict[tuple[str, int, str], list[Deferred]] = defaultdict(list)
    for one in facts.deferred:
        groups[one.pool, one.priority, one.signature].append(one)
    there: dict[tuple[str, int], list[Waits]] = defaultdict(list)
    for waits in facts.waiting:
        there[waits.place, waits.priority].append(waits)
    let: list[Let] = []
    for (pool, priority, signature), those in sorted(groups.items()):
        needed = of_task(pool, signature)
        rooms = [_rooms(one, n, priority, those, found, there) for one, n in needed]
        for one, *some in zip(those, *rooms, strict=True):
            tasks = min(one.tasks, *some)
            if tasks > 0:
                let.append(Let(pool, priority, signature, one.tenant, tasks))
                for name, n in needed:  # the next group sees it in line
                    there[name, priority].append(Waits(name, priority, one.tenant, n * tasks, one.weight))
    return let


def _rooms(
    name: str,
    n: int,
    priority: int,
    those: Sequence[Deferred],
    found: Mapping[str, Place],
    there: Mapping[tuple[str, int], Sequence[Waits]],
) -> list[int]:
    """Return how many more of each may be in line at a place."""
    place = found.get(name)
    if place is None or place.slots <= 0:
        return [0] * len(those)
    has: dict[int, float] = defaultdict(float)
    crowds = []
    for waits in there.get((name, priority), ()):
        if waits.tenant is None:
            crowds.append(Crowd(waits.tasks, waits.weight))
        else:
            has[waits.tenant] += waits.tasks
    wanting = {one.tenant: Crowd(has[one.tenant] + n * one.tasks, one.weight) for one in those}
    crowds += [Crowd(tasks, 1.0) for tenant, tasks in has.items() if tenant not in wanting]
    level = level_of(place, priority, TARGET_S[priority], [*crowds, *wanting.values()])
    exact = [max(0.0, (min(wanting[one.tenant].tasks, level * one.weight) - has[one.tenant]) / n) for one in those]
    rooms = [int(one + EPSILON) for one in exact]
    # What is left by rounding goes to who lacks most of a whole one; of equals to who has waited longest.
    left = int(sum(exact) + EPSILON) - sum(rooms)
    for at in sorted(range(len(those)), key=lambda at: (rooms[at] - exact[at], those[at].first))[:left]:
        rooms[at] += 1
    return rooms


def _slots(facts: Facts, in_use: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    for pool, n in facts.slots.items():
        yield of_pool(pool), float(n)
    for name, limit in facts.limits.items():
        if limit.limit > 0:
            yield of_resource(name), limit.limit / phi(limit, in_use[of_resource(name)])
