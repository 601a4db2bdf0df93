"""What is in use and what has room, at one moment over all pools: the counting that a tick begins with.

A tick plans pool after pool on the same counts, each plan's picks counted before the next is made. Store and simulator
both count here, so that a plan can't depend on who asks. Reads nothing by itself; changes only the Room it is given.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from harness.policy import ramp
from harness.policy.dispatch import Pick
from harness.policy.settings import QUARANTINE, SYSTEM

Pause = tuple[str, str, str, str]  # scope, key, source, reason


@dataclass(frozen=True, slots=True)
class InFlight:
    """Live leases of one (pool, via, tenant, run, signature): slots and members; caps of the tenant and run."""

    pool: str
    via: str | None
    tenant: int
    run: int
    signature: str
    leases: int
    members: int
    tenant_cap: int
    run_cap: int | None


@dataclass(slots=True)
class Room:
    """Free slots of pools that may release; members in flight; what is left of resources and quotas; who is full."""

    slots: Mapping[str, int]
    free: dict[str, int]
    resources: dict[str, int]
    quotas: dict[tuple[int, str, str], int]
    tenants: dict[int, int] = field(default_factory=dict)
    runs: dict[int, int] = field(default_factory=dict)
    full_tenants: set[int] = field(default_factory=set)
    full_runs: set[int] = field(default_factory=set)
    ramps: dict[str, ramp.Left] = field(default_factory=dict)  # by pool: of scopes that come back from a pause


def measure(
    slots: Mapping[str, int],
    *,
    pauses: Iterable[Pause],
    capacities: Mapping[str, int],
    quotas: Iterable[tuple[int, str, str, int]],
    flight: Sequence[InFlight],
) -> Room:
    """Return the room that slots, capacities and quotas (tenant, scope, name, cap) leave beside what is in flight."""
    paused = {key for scope, key, _, _ in pauses if scope == "pool"}
    room = Room(
        slots=slots,
        free={pool: n for pool, n in slots.items() if pool != SYSTEM and pool not in paused},
        resources=dict(capacities),
        quotas={(tenant, scope, name): cap for tenant, scope, name, cap in quotas},
    )
    for use in flight:
        count(room, use)
    for use in flight:
        note_full(room, use.tenant, use.tenant_cap, use.run, use.run_cap)
    return room


def count(room: Room, use: InFlight) -> None:
    """Count what is in flight. A use of negative numbers takes it off again."""
    for pool in (use.pool, use.via):
        if pool in room.free:
            room.free[pool] -= use.leases
    room.tenants[use.tenant] = room.tenants.get(use.tenant, 0) + use.members
    if use.run:
        room.runs[use.run] = room.runs.get(use.run, 0) + use.members
    for resource, n in needs(use.signature):
        room.resources[resource] = room.resources.get(resource, 0) - n * use.leases
        _spend_quota(room, (use.tenant, "resource", resource), n * use.leases)
    _spend_quota(room, (use.tenant, "pool", use.pool), use.members)


def note_full(room: Room, tenant: int, tenant_cap: int, run: int, run_cap: int | None) -> None:
    """Note that a tenant or run is at its cap, or no longer."""
    if room.tenants.get(tenant, 0) >= tenant_cap:
        room.full_tenants.add(tenant)
    else:
        room.full_tenants.discard(tenant)
    if run and run_cap is not None:
        if room.runs.get(run, 0) >= run_cap:
            room.full_runs.add(run)
        else:
            room.full_runs.discard(run)


def take(room: Room, pool: str, picks: Iterable[Pick]) -> None:
    """Count what a plan gave, before the next is made."""
    for pick in picks:
        flow = pick.flow
        via = QUARANTINE if pick.quarantine else None
        size = len(pick.tasks)
        count(
            room,
            InFlight(pool, via, flow.tenant, flow.run, flow.signature, 1, size, flow.tenant_cap, flow.run_cap),
        )
        note_full(room, flow.tenant, flow.tenant_cap, flow.run, flow.run_cap)
        left = room.ramps.get(pool, {})
        for scope in (("priority", flow.priority), ("tenant", flow.tenant), ("run", flow.run)):
            if scope in left:
                left[scope] -= 1


def slow_down(room: Room, ramps: Sequence[ramp.Ramp], held: Sequence[ramp.Held], *, aged_s: float) -> None:
    """Give scopes that come back from a pause no more than their ramps do. `aged_s`: how old `ramps` are."""
    pools, room.ramps = ramp.left(ramps, held, room.slots, aged_s=aged_s)
    room.free |= {pool: min(room.free[pool], n) for pool, n in pools.items() if pool in room.free}


@lru_cache(maxsize=4096)
def needs(signature: str) -> tuple[tuple[str, int], ...]:
    """Read a resource signature.

    >>> needs("browser=1,llm:default=2"), needs("")
    ((('browser', 1), ('llm:default', 2)), ())
    """
    if not signature:
        return ()
    return tuple((name, int(n)) for name, _, n in (part.rpartition("=") for part in signature.split(",")))


def _spend_quota(room: Room, key: tuple[int, str, str], n: int) -> None:
    if key in room.quotas:
        room.quotas[key] -= n
