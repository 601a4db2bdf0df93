"""What is in use and what has room, at one moment over all pools: the counting that a tick begins with.

A tick plans pool after pool on the same counts, each plan's picks counted before the next is made. Store and simulator
both count here, so that a plan can't depend on who asks. Reads nothing by itself; changes only the Room it is given.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from harness.policy import ramp
from harness.policy.flight import Flight
from harness.policy.flow import needs
from harness.policy.lanes import NO_LANE
from harness.policy.plan import Reserved
from harness.policy.pressure import Level
from harness.policy.settings import SYSTEM

Pause = tuple[str, str, str, str]  # scope, key, source, reason
NOTHING: Mapping[str, int] = MappingProxyType({})


class InFlight(NamedTuple):
    """Live leases of one (pool, via, tenant, run, signature, priority, lane): slots and members.

    `cost`: sum of what a second of each costs (rule 9). `overrun_s` + `over_cost` * now: sum of what each has held
    beyond its estimate, times its cost. `ends_s`: when each should end, of leases that hold a resource.
    (A tuple by name: a tick makes one for each tenant in flight, and a frozen dataclass takes four times as long.)
    """

    pool: str
    via: str | None
    tenant: int
    run: int
    signature: str
    leases: int
    members: int
    priority: int
    lane: int = NO_LANE
    cost: float = 0.0
    overrun_s: float = 0.0
    ends_s: tuple[float, ...] = ()
    over_cost: float = 0.0


@dataclass(slots=True)
class Room:
    """Free slots of pools that may release; members in flight; what is left of resources and quotas.

    `flight`: by pool, what its tasks hold. `ends`: (when, signature) of leases that hold a resource. `reserved`: what
    each pool's last plan keeps for somebody (rule 11); whoever begins a tick gathers it from the lines. `urgent`: how
    much more P0 has of a resource than is in `capacities`. `tenant_caps`: how many each tenant may hold of a resource;
    `of_tenants`: what (tenant, resource) holds of those. `level`: of pressure.
    """

    slots: Mapping[str, int]
    free: dict[str, int]
    capacities: Mapping[str, int]
    resources: dict[str, int]
    quotas: dict[tuple[int, str, str], int]
    tenants: dict[int, int] = field(default_factory=dict)
    runs: dict[int, int] = field(default_factory=dict)
    flight: dict[str, Flight] = field(default_factory=dict)
    ends: list[tuple[float, str]] = field(default_factory=list)
    reserved: dict[str, Reserved] = field(default_factory=dict)
    ramps: dict[str, ramp.Left] = field(default_factory=dict)  # by pool: of scopes that come back from a pause
    urgent: Mapping[str, int] = field(default_factory=dict)
    tenant_caps: Mapping[str, int] = field(default_factory=dict)
    of_tenants: dict[tuple[int, str], int] = field(default_factory=dict)
    level: Level = Level.NORMAL


def measure(
    slots: Mapping[str, int],
    *,
    pauses: Iterable[Pause],
    capacities: Mapping[str, int],
    quotas: Iterable[tuple[int, str, str, int]],
    flight: Sequence[InFlight],
    urgent: Mapping[str, int] = NOTHING,
    tenant_caps: Mapping[str, int] = NOTHING,
    level: Level = Level.NORMAL,
) -> Room:
    """Return the room that slots, capacities and quotas (tenant, scope, name, cap) leave beside what is in flight."""
    paused = {key for scope, key, _, _ in pauses if scope == "pool"}
    room = Room(
        slots=slots,
        free={pool: n for pool, n in slots.items() if pool != SYSTEM and pool not in paused},
        capacities=capacities,
        resources=dict(capacities),
        quotas={(tenant, scope, name): cap for tenant, scope, name, cap in quotas},
        flight={pool: Flight() for pool in slots},
        urgent=urgent,
        tenant_caps=tenant_caps,
        level=level,
    )
    for use in flight:
        count(room, use)
    return room


def count(room: Room, use: InFlight) -> None:
    """Count what is in flight. A use of negative numbers takes it off again."""
    hold(
        room,
        use.pool,
        use.via,
        (use.priority, use.tenant, use.run, use.lane),
        use.signature,
        use.leases,
        use.members,
        use.cost or float(use.leases),
        use.overrun_s,
        use.over_cost,
    )
    if use.ends_s:
        room.ends += [(end_s, use.signature) for end_s in use.ends_s]


def hold(
    room: Room,
    pool: str,
    via: str | None,
    of: tuple[int, int, int, int],
    signature: str,
    leases: int,
    members: int,
    cost: float,
    overrun_s: float = 0.0,
    over_cost: float = 0.0,
) -> None:
    """Count leases of (priority, tenant, run, lane), or take them off again. The ends of their time aren't noted."""
    free = room.free
    if pool in free:
        free[pool] -= leases
    if via is not None and via in free:
        free[via] -= leases
    flight = room.flight.get(pool)
    if flight is None:
        flight = room.flight[pool] = Flight()
    priority, tenant, run, lane = of
    flight.count(priority, tenant, run, lane, leases, cost, overrun_s, over_cost)
    _add(room.tenants, tenant, members)
    if run:
        _add(room.runs, run, members)
    if signature:
        for resource, n in needs(signature):
            room.resources[resource] = room.resources.get(resource, 0) - n * leases
            _spend_quota(room, (tenant, "resource", resource), n * leases)
            if resource in room.tenant_caps:
                room.of_tenants[tenant, resource] = room.of_tenants.get((tenant, resource), 0) + n * leases
    if room.quotas:
        _spend_quota(room, (tenant, "pool", pool), members)


def slow_down(room: Room, ramps: Sequence[ramp.Ramp], held: Sequence[ramp.Held], *, aged_s: float) -> None:
    """Give scopes that come back from a pause no more than their ramps do. `aged_s`: how old `ramps` are."""
    pools, room.ramps = ramp.left(ramps, held, room.slots, aged_s=aged_s)
    room.free |= {pool: min(room.free[pool], n) for pool, n in pools.items() if pool in room.free}


def _add(counts: dict[int, int], key: int, n: int) -> None:
    """Add to a count; who has nothing in flight isn't in it."""
    left = counts.get(key, 0) + n
    if left:
        counts[key] = left
    else:
        counts.pop(key, None)


def _spend_quota(room: Room, key: tuple[int, str, str], n: int) -> None:
    if key in room.quotas:
        room.quotas[key] -= n
