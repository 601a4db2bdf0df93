"""One tick of one pool, decided page by page: what a look leaves out, how far it goes, what the plan gives.

Who holds the flows (PostgreSQL or the simulator) only answers a look; all that is decided is decided here, so that both
release the same. What is blocked is left out before the page is cut, never after (architecture, decision 4).

Invariants: no flow is looked at twice in a tick; the room only shrinks; looking ends when slots or flows do.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from harness.policy.dispatch import BUNDLE_MAX, LOST_STARTS_QUARANTINE, Facts, FlowFacts, Pick, Plan, plan
from harness.policy.room import Pause, Room, needs, take
from harness.policy.settings import QUARANTINE

# A page of flows is larger than the slots it can fill, so that the plan has a choice; each costs a descent for heads.
FLOWS_A_SLOT = 4
FLOWS_A_PAGE_LEAST = 32
FLOWS_A_PAGE = 200

NOBODY_LOST_SO_MANY = 2**31 - 1

Place = tuple[int, float, int]  # priority, rank, id of a flow
START: Place = (-1, 0.0, 0)  # before the first flow


class KindFacts(Protocol):
    """What a plan must know of a kind. `costs`: it spends money, so a tenant's budget holds it."""

    @property
    def name(self) -> str: ...
    @property
    def pool(self) -> str: ...
    @property
    def signature(self) -> str: ...
    @property
    def est_s(self) -> float: ...
    @property
    def bundle(self) -> bool: ...
    @property
    def costs(self) -> bool: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Blocked:
    """What to leave out of a look at flows, before it is cut."""

    priorities: frozenset[int] = frozenset()
    tenants: frozenset[int] = frozenset()
    runs: frozenset[int] = frozenset()
    signatures: frozenset[str] = frozenset()
    pairs: frozenset[tuple[int, str]] = frozenset()
    lost_below: int = NOBODY_LOST_SO_MANY  # tasks that have lost so many workers, or more


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """A look: the flows of a pool after a place, at most `flows`, each with at most `heads`, at most `rows` in all.

    A flow without heads comes too (it is empty, and is one row); the last flow may come with fewer heads than it has.
    """

    pool: str
    after: Place
    blocked: Blocked
    flows: int
    heads: int
    rows: int


Look = Callable[[Asked], Sequence[FlowFacts]]


@dataclass(slots=True)
class Seen:
    """What the last look at a pool found: how many flows had heads, and whether there was work to bundle."""

    flows: int = 1
    bundled: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Kinds:
    """What is known of all kinds, by pool where it matters. `estimates`: seconds by kind."""

    estimates: Mapping[str, float]
    bundling: frozenset[str]
    bundling_in: Mapping[str, frozenset[str]]
    signatures_in: Mapping[str, frozenset[str]]
    costing_in: Mapping[str, frozenset[str]]  # signatures


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """What rarely changes: pauses in force, the kinds, and the tenants whose budget is spent."""

    kinds: Kinds
    pauses: Sequence[Pause] = ()
    beyond: Collection[int] = ()


@dataclass(slots=True)
class Decided:
    """The plans of one pool's pages in order, and the flows that were seen empty."""

    plans: list[Plan] = field(default_factory=list)
    empty: list[int] = field(default_factory=list)

    @property
    def picks(self) -> list[Pick]:
        """All picks in order."""
        return [pick for one in self.plans for pick in one.picks]


def know(kinds: Iterable[KindFacts], estimates: Mapping[str, float]) -> Kinds:
    """Gather what is known of the kinds. `estimates`: measured seconds, where there are any."""
    every = list(kinds)
    pools = {kind.pool for kind in every}
    return Kinds(
        estimates={kind.name: estimates.get(kind.name, kind.est_s) for kind in every},
        bundling=frozenset(kind.name for kind in every if kind.bundle),
        bundling_in={p: frozenset(kind.name for kind in every if kind.bundle and kind.pool == p) for p in pools},
        signatures_in={p: frozenset(k.signature for k in every if k.signature and k.pool == p) for p in pools},
        costing_in={p: frozenset(kind.signature for kind in every if kind.costs and kind.pool == p) for p in pools},
    )


def decide(pool: str, room: Room, standing: Standing, seen: Seen, look: Look) -> Decided:
    """Decide one tick of one pool. Changes `room` (what is picked is taken) and `seen`; `look` answers each page."""
    decided = Decided()
    bundling = standing.kinds.bundling_in.get(pool, frozenset())
    after = START
    while (free := room.free.get(pool, 0)) > 0:
        # Many heads only where the last look saw work that shares slots; a burst of it is found one tick later.
        wanted = free * (BUNDLE_MAX if seen.bundled else 1)
        page = min(FLOWS_A_PAGE, max(FLOWS_A_PAGE_LEAST, FLOWS_A_SLOT * free))
        flows = look(
            Asked(
                pool=pool,
                after=after,
                blocked=blocked(pool, room, standing),
                flows=page,
                heads=max(1, -(-wanted // max(1, seen.flows))),
                rows=wanted + page,
            )
        )
        seen.flows = max(1, sum(1 for flow in flows if flow.heads))
        seen.bundled = bool(bundling) and any(head.kind in bundling for flow in flows for head in flow.heads)
        decided.empty += [flow.id for flow in flows if not flow.heads]
        planned = plan(_facts(pool, flows, room, standing.kinds))
        take(room, pool, planned.picks)
        decided.plans.append(planned)
        if len(flows) < page:
            break
        after = (flows[-1].priority, flows[-1].rank, flows[-1].id)
    return decided


def blocked(pool: str, room: Room, standing: Standing) -> Blocked:
    """Return what can't run in this pool now, whatever its turn: paused, at a cap, in need of what is used up."""
    priorities: set[int] = set()
    tenants, runs = set(room.full_tenants), set(room.full_runs)
    for scope, key, _, _ in standing.pauses:
        if scope == "priority" and key in ("p0", "p1", "p2", "p3"):
            priorities.add(int(key[1]))
        elif scope == "pool_priority" and key.startswith(f"{pool}.p"):
            priorities.add(int(key[-1]))
        elif scope == "tenant":
            tenants.add(int(key))
        elif scope == "run":
            runs.add(int(key))
    signatures = standing.kinds.signatures_in.get(pool, frozenset())
    for (scope, number), left in room.ramps.get(pool, {}).items():
        if left <= 0:
            {"priority": priorities, "tenant": tenants, "run": runs}[scope].add(number)
    # What costs isn't started beyond the tenant's budget; its other work goes on.
    costing = standing.kinds.costing_in.get(pool, frozenset())
    pairs = {(tenant, signature) for signature in costing for tenant in standing.beyond}
    for (tenant, scope, name), left in room.quotas.items():
        if scope == "pool" and name == pool and left <= 0:
            tenants.add(tenant)
        elif scope == "resource":
            pairs |= {(tenant, s) for s in signatures if any(r == name and left < n for r, n in needs(s))}
    return Blocked(
        priorities=frozenset(priorities),
        tenants=frozenset(tenants),
        runs=frozenset(runs),
        signatures=frozenset(s for s in signatures if any(room.resources.get(r, 0) < n for r, n in needs(s))),
        pairs=frozenset(pairs),
        lost_below=NOBODY_LOST_SO_MANY if room.free.get(QUARANTINE, 0) > 0 else LOST_STARTS_QUARANTINE,
    )


def _facts(pool: str, flows: Sequence[FlowFacts], room: Room, kinds: Kinds) -> Facts:
    return Facts(
        pool=pool,
        free=room.free[pool],
        quarantine_free=room.free.get(QUARANTINE, 0),
        flows=tuple(flows),
        tenant_in_flight=room.tenants,
        run_in_flight=room.runs,
        resource_room=room.resources,
        quota_room=room.quotas,
        estimates=kinds.estimates,
        bundling=kinds.bundling,
        ramp_room=room.ramps.get(pool, {}),
    )
