"""The plan of one tick for one pool: which ready tasks take which slots, and why the others don't.

Rules, in order (README.md numbers them):
D1  Priorities are strict: no flow of P(n+1) is picked while one of Pn has an eligible head.
D2  Within a priority: the flow whose tenant has fewest members in flight, then whose run has, then by rank, then id.
D3  Within a flow: oldest first.
D4  Eligible = a slot is free, and tenant cap, tenant quotas (pool, resource), run cap and every resource have room.
    All or none: a pick takes everything in one step, a refusal takes nothing.
D5  A head that isn't eligible blocks its own flow only, and the flow's reason is kept.
D6  A bundle is one slot: successive heads of one flow and one bundling kind, never P0, never a task marked single or
    one that lost a worker; the sum of estimates is at most BUNDLE_S, and no slot takes more than its even share of
    what is waiting.
D7  A task that lost its worker LOST_STARTS_QUARANTINE times takes a slot of its pool and one of quarantine. While
    quarantine has none, such a head is passed over: it blocks nobody, not even its own flow.
D8  A scope that comes back from a pause holds no more slots than its ramp gives (policy.ramp).

Cost: O((flows + picks) log flows) for what the snapshot holds; it doesn't know the backlog.
"""

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil

BUNDLE_S = 0.1  # seconds that a bundle may be expected to take: what a P0 task may wait behind it
BUNDLE_MAX = 100  # members; beyond, settling in flushes costs as much as it saves
LOST_STARTS_QUARANTINE = 2  # lost workers before a task is run where it can harm nobody else


@dataclass(frozen=True, slots=True)
class Head:
    """A ready task: id, kind, whether it must be alone on its lease, and how many workers it has lost."""

    task: int
    kind: str
    single: bool = False
    lost_starts: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class FlowFacts:
    """A flow with its first heads, oldest first. `needs`: (resource, number) for each task of it."""

    id: int
    priority: int
    tenant: int
    run: int
    signature: str
    rank: float
    tenant_cap: int
    run_cap: int | None
    heads: tuple[Head, ...]
    needs: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """One pool at one moment.

    `free`, `quarantine_free`: slots. In flight: members per tenant and run, over all pools. `resource_room`: how many
    more of a resource may be held. `quota_room`: (tenant, "pool" | "resource", name) -> room, where a quota exists.
    `ramp_room`: ("priority" | "tenant" | "run", number) -> slots left to a scope that comes back from a pause.
    `estimates`: seconds by kind. `bundling`: the kinds that may share a slot.
    """

    pool: str
    free: int
    quarantine_free: int
    flows: tuple[FlowFacts, ...]
    tenant_in_flight: Mapping[int, int]
    run_in_flight: Mapping[int, int]
    resource_room: Mapping[str, int]
    quota_room: Mapping[tuple[int, str, str], int]
    estimates: Mapping[str, float]
    bundling: frozenset[str]
    ramp_room: Mapping[tuple[str, int], int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pick:
    """One slot given: the tasks that share it (more than one: a bundle). `quarantine`: it runs there."""

    flow: FlowFacts
    kind: str
    tasks: tuple[int, ...]
    quarantine: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """The picks in order, and for each flow left with heads the reason that binds it (flow id -> reason)."""

    picks: tuple[Pick, ...]
    held: Mapping[int, str]


@dataclass(slots=True)
class _Counters:
    free: int
    quarantine_free: int
    tenants: dict[int, int]
    runs: dict[int, int]
    resources: dict[str, int]
    quotas: dict[tuple[int, str, str], int]
    ramps: dict[tuple[str, int], int]
    held: dict[int, str] = field(default_factory=dict)


def plan(facts: Facts) -> Plan:
    """Decide one tick of one pool. Pure and deterministic; the order of `facts.flows` doesn't matter."""
    counters = _Counters(
        free=facts.free,
        quarantine_free=facts.quarantine_free,
        tenants=dict(facts.tenant_in_flight),
        runs=dict(facts.run_in_flight),
        resources=dict(facts.resource_room),
        quotas=dict(facts.quota_room),
        ramps=dict(facts.ramp_room),
    )
    waiting = sum(len(flow.heads) for flow in facts.flows)
    share = ceil(waiting / facts.free) if facts.free > 0 else 1
    taken: dict[int, int] = {}
    picks: list[Pick] = []
    heap = [(*_order(flow, counters), flow) for flow in facts.flows if flow.heads]
    heapq.heapify(heap)
    while heap:
        if counters.free <= 0:
            counters.held.update((entry[-1].id, "slots") for entry in heap)
            break
        *key, flow = heapq.heappop(heap)
        fresh = _order(flow, counters)
        if tuple(key) != fresh:  # its tenant or run was served since: put it where it belongs now
            heapq.heappush(heap, (*fresh, flow))
            continue
        start = taken.get(flow.id, 0)
        reason, room = _room(flow, facts.pool, counters)
        if reason is not None:
            counters.held[flow.id] = reason
            continue
        head = flow.heads[start]
        quarantine = head.lost_starts >= LOST_STARTS_QUARANTINE
        if quarantine and counters.quarantine_free <= 0:
            counters.held[flow.id] = "quarantine"
            taken[flow.id] = start + 1
            if start + 1 < len(flow.heads):
                heapq.heappush(heap, (*fresh, flow))
            continue
        size = 1 if quarantine else _bundle_size(flow, start, facts, share, room)
        picks.append(
            Pick(
                flow=flow,
                kind=head.kind,
                tasks=tuple(one.task for one in flow.heads[start : start + size]),
                quarantine=quarantine,
            )
        )
        _take(flow, facts.pool, size, quarantine, counters)
        taken[flow.id] = start + size
        if start + size < len(flow.heads):
            heapq.heappush(heap, (*_order(flow, counters), flow))
    return Plan(picks=tuple(picks), held=counters.held)


def _order(flow: FlowFacts, counters: _Counters) -> tuple[int, int, int, float, int]:
    run = counters.runs.get(flow.run, 0) if flow.run else 0
    return (flow.priority, counters.tenants.get(flow.tenant, 0), run, flow.rank, flow.id)


def _room(flow: FlowFacts, pool: str, counters: _Counters) -> tuple[str | None, int]:
    """Return (None, how many more members fit) or (the reason that binds, 0)."""
    room = flow.tenant_cap - counters.tenants.get(flow.tenant, 0)
    if room <= 0:
        return "tenant_cap", 0
    if counters.ramps and any(counters.ramps.get(key, 1) <= 0 for key in _scopes(flow)):
        return "ramp", 0
    if flow.run and flow.run_cap is not None:
        room = min(room, flow.run_cap - counters.runs.get(flow.run, 0))
        if room <= 0:
            return "run_cap", 0
    pool_room = counters.quotas.get((flow.tenant, "pool", pool))
    if pool_room is not None:
        if pool_room <= 0:
            return f"quota:{pool}", 0
        room = min(room, pool_room)
    for resource, n in flow.needs:
        if counters.resources.get(resource, 0) < n:
            return f"resource:{resource}", 0
        quota = counters.quotas.get((flow.tenant, "resource", resource))
        if quota is not None and quota < n:
            return f"quota:{resource}", 0
    return None, room


def _scopes(flow: FlowFacts) -> tuple[tuple[str, int], ...]:
    return ("priority", flow.priority), ("tenant", flow.tenant), ("run", flow.run)


def _bundle_size(flow: FlowFacts, start: int, facts: Facts, share: int, room: int) -> int:
    head = flow.heads[start]
    if flow.priority == 0 or head.single or head.lost_starts or head.kind not in facts.bundling:
        return 1
    est_s = max(facts.estimates.get(head.kind, BUNDLE_S), BUNDLE_S / BUNDLE_MAX)
    limit = min(room, share, int(BUNDLE_S / est_s + 1e-9), BUNDLE_MAX, len(flow.heads) - start)
    size = 1
    while size < limit:
        following = flow.heads[start + size]
        if following.kind != head.kind or following.single or following.lost_starts:
            break
        size += 1
    return size


def _take(flow: FlowFacts, pool: str, size: int, quarantine: bool, counters: _Counters) -> None:
    counters.free -= 1
    counters.quarantine_free -= int(quarantine)
    counters.tenants[flow.tenant] = counters.tenants.get(flow.tenant, 0) + size
    if flow.run:
        counters.runs[flow.run] = counters.runs.get(flow.run, 0) + size
    for scope in _scopes(flow) if counters.ramps else ():
        if scope in counters.ramps:
            counters.ramps[scope] -= 1
    key = (flow.tenant, "pool", pool)
    if key in counters.quotas:
        counters.quotas[key] -= size
    for resource, n in flow.needs:
        counters.resources[resource] -= n
        key = (flow.tenant, "resource", resource)
        if key in counters.quotas:
            counters.quotas[key] -= n
