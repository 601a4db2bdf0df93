"""The stage `dispatch`: one tick is a bounded snapshot, the pure plan, one commit under the epoch, then the messages.

Only the leader ticks. A crash between commit and publish is healed by the sweep; a publish that fails is taken back at
once. Nothing here waits for a worker.
"""

import secrets
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from harness.engine import ramps
from harness.kinds import registry
from harness.policy.dispatch import BUNDLE_MAX, LOST_STARTS_QUARANTINE, Facts, FlowFacts, Head, Pick, plan
from harness.policy.errors import Unavailable
from harness.policy.money import Standing
from harness.policy.settings import QUARANTINE, SYSTEM, Topology
from harness.store import money, snapshot, transitions
from harness.store.database import Connection
from harness.store.message import Message
from harness.store.snapshot import NOBODY_LOST_SO_MANY, Blocked, FlowKey, FlowRow, InFlight, InUse, Scopes
from harness.store.transitions import NewLease
from harness.telemetry import logs

# A page of flows is larger than the slots it can fill, so that the plan has a choice; each costs a descent for heads.
FLOWS_A_SLOT = 4
FLOWS_A_PAGE_LEAST = 32
FLOWS_A_PAGE = 200
SCOPES_EVERY_S = 1.0
# A deleted flow is looked at again after these times: longer than any transaction that may have counted on it.
LOOK_AGAIN_S = (0.3, 2.0, 15.0, 65.0)
GRACE_S = 5.0  # between a prefork child's soft and hard time limit

Publish = Callable[[Sequence[Message]], None]
log = logs.get(__name__)


@dataclass(slots=True)
class Memory:
    """What a leader remembers between ticks; losing it costs one full scan, never a task."""

    scopes: Scopes | None = None
    scopes_read_s: float = 0.0
    deleted: list[tuple[float, int, FlowKey]] = field(default_factory=list)  # (due at, how often looked, key)
    flows_seen: dict[str, int] = field(default_factory=dict)  # flows of the last look, by pool
    bundled: dict[str, bool] = field(default_factory=dict)  # whether that look saw work to bundle
    beyond: dict[int, Standing] = field(default_factory=dict)  # tenants whose budget is spent


@dataclass(slots=True)
class _Room:
    """What is in use now, changed as pools are planned one after the other."""

    slots: dict[str, int]
    free: dict[str, int]
    tenants: dict[int, int]
    runs: dict[int, int]
    resources: dict[str, int]
    quotas: dict[tuple[int, str, str], int]
    full_tenants: set[int]
    full_runs: set[int]
    ramps: dict[str, dict[tuple[str, int], int]]  # by pool: slots left to a scope that comes back from a pause


def begin(connection: Connection) -> Memory:
    """Begin to lead: find every flow. Returns the leader's empty memory."""
    missing = snapshot.scan_flows(connection)
    log.info("lead_taken", flows_found=missing)
    return Memory()


def tick(connection: Connection, topology: Topology, memory: Memory, *, epoch: int, publish: Publish) -> int:
    """Release what has room, in order. Returns how many leases were released. Raises: Unavailable (broker)."""
    # 1. Load what is in use
    scopes = _scopes(connection, memory)
    in_use = snapshot.in_use(connection, [pool for pool in topology.pools if pool != SYSTEM])
    room = _room(topology, scopes, in_use)
    if scopes.ramps:
        _ramp(connection, room, scopes, aged_s=time.monotonic() - memory.scopes_read_s)
    released = 0
    for pool in in_use.with_flows:
        if room.free.get(pool, 0) <= 0:
            continue
        # 2. Decide, page by page while slots remain
        picks: list[Pick] = []
        empty: list[int] = []
        for rows in _pages(connection, pool, room, scopes, memory):
            empty += [row.id for row in rows if not row.heads]
            decided = plan(_facts(pool, rows, room, scopes))
            picks += decided.picks
            _use(room, pool, decided.picks)
        # 3. Commit, then tell the workers
        if picks:
            released += _commit(connection, topology, pool, picks, epoch=epoch, publish=publish)
        if empty:
            now_s = time.monotonic()
            keys = snapshot.delete_empty_flows(connection, empty, epoch=epoch)
            memory.deleted += [(now_s + LOOK_AGAIN_S[0], 0, key) for key in keys]
    _look_again(connection, memory)
    return released


def _scopes(connection: Connection, memory: Memory) -> Scopes:
    now_s = time.monotonic()
    if memory.scopes is None or now_s - memory.scopes_read_s >= SCOPES_EVERY_S:
        memory.scopes, memory.scopes_read_s = snapshot.scopes(connection), now_s
        _look_at_budgets(connection, memory)
    return memory.scopes


def _look_at_budgets(connection: Connection, memory: Memory) -> None:
    beyond = money.beyond(connection)
    for tenant in beyond.keys() - memory.beyond.keys():
        log.info("budget_spent", tenant=tenant, period=beyond[tenant].period, limit_usd=beyond[tenant].limit_usd)
    memory.beyond = beyond


def _room(topology: Topology, scopes: Scopes, in_use: InUse) -> _Room:
    slots = in_use.slots
    paused = {key for scope, key, _, _ in scopes.pauses if scope == "pool"}
    room = _Room(
        slots=slots,
        free={pool: n for pool, n in slots.items() if pool != SYSTEM and pool not in paused},
        tenants={},
        runs={},
        resources={name: resource.capacity for name, resource in topology.resources.items()},
        quotas={(tenant, scope, name): cap for tenant, scope, name, cap in scopes.quotas},
        full_tenants=set(),
        full_runs=set(),
        ramps={},
    )
    for use in in_use.flight:
        _count(room, use)
    for use in in_use.flight:
        if room.tenants[use.tenant] >= use.tenant_cap:
            room.full_tenants.add(use.tenant)
        if use.run and use.run_cap is not None and room.runs[use.run] >= use.run_cap:
            room.full_runs.add(use.run)
    return room


def _ramp(connection: Connection, room: _Room, scopes: Scopes, *, aged_s: float) -> None:
    held = snapshot.leases_by_scope(connection)
    pools, room.ramps = ramps.left(scopes.ramps, held, room.slots, aged_s=aged_s)
    room.free |= {pool: min(room.free[pool], n) for pool, n in pools.items() if pool in room.free}


def _count(room: _Room, use: InFlight) -> None:
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


def _spend_quota(room: _Room, key: tuple[int, str, str], n: int) -> None:
    if key in room.quotas:
        room.quotas[key] -= n


def _pages(connection: Connection, pool: str, room: _Room, scopes: Scopes, memory: Memory) -> Iterator[list[FlowRow]]:
    """Yield pages of flows while slots remain; what can't run now is left out by the statement."""
    bundling = {kind.name for kind in registry.all_kinds() if kind.bundle and kind.pool == pool}
    after = snapshot.START
    while room.free[pool] > 0:
        # Many heads only where the last look saw work that shares slots; a burst of it is found one tick later.
        wanted = room.free[pool] * (BUNDLE_MAX if memory.bundled.get(pool) else 1)
        heads = max(1, -(-wanted // max(1, memory.flows_seen.get(pool, 1))))
        page = min(FLOWS_A_PAGE, max(FLOWS_A_PAGE_LEAST, FLOWS_A_SLOT * room.free[pool]))
        rows = snapshot.flows(
            connection,
            pool,
            after=after,
            blocked=_blocked(pool, room, scopes, memory.beyond),
            limit=page,
            heads=heads,
            rows=wanted + page,
        )
        memory.flows_seen[pool] = max(1, sum(1 for row in rows if row.heads))
        memory.bundled[pool] = any(kind in bundling for row in rows for _, kind, _, _ in row.heads)
        yield rows
        if len(rows) < page:
            return
        after = (rows[-1].priority, rows[-1].rank, rows[-1].id)


def _blocked(pool: str, room: _Room, scopes: Scopes, beyond: Collection[int]) -> Blocked:
    priorities: set[int] = set()
    tenants, runs = set(room.full_tenants), set(room.full_runs)
    for scope, key, _, _ in scopes.pauses:
        if scope == "priority" and key in ("p0", "p1", "p2", "p3"):
            priorities.add(int(key[1]))
        elif scope == "pool_priority" and key.startswith(f"{pool}.p"):
            priorities.add(int(key[-1]))
        elif scope == "tenant":
            tenants.add(int(key))
        elif scope == "run":
            runs.add(int(key))
    for (scope, number), left in room.ramps.get(pool, {}).items():
        if left <= 0:
            {"priority": priorities, "tenant": tenants, "run": runs}[scope].add(number)
    # What costs isn't started beyond the tenant's budget; its other work goes on.
    pairs = {(tenant, kind.signature) for kind in registry.costing(pool) for tenant in beyond}
    signatures = {kind.signature for kind in registry.all_kinds() if kind.pool == pool and kind.signature}
    for (tenant, scope, name), left in room.quotas.items():
        if scope == "pool" and name == pool and left <= 0:
            tenants.add(tenant)
        elif scope == "resource":
            pairs |= {(tenant, s) for s in signatures if any(r == name and left < n for r, n in needs(s))}
    full = {s for s in signatures if any(room.resources.get(r, 0) < n for r, n in needs(s))}
    return Blocked(
        priorities=frozenset(priorities),
        tenants=frozenset(tenants),
        runs=frozenset(runs),
        signatures=frozenset(full),
        pairs=frozenset(pairs),
        lost_below=NOBODY_LOST_SO_MANY if room.free.get(QUARANTINE, 0) > 0 else LOST_STARTS_QUARANTINE,
    )


def _facts(pool: str, rows: list[FlowRow], room: _Room, scopes: Scopes) -> Facts:
    kinds = registry.all_kinds()
    return Facts(
        pool=pool,
        free=room.free[pool],
        quarantine_free=room.free.get(QUARANTINE, 0),
        flows=tuple(
            FlowFacts(
                id=row.id,
                priority=row.priority,
                tenant=row.tenant,
                run=row.run,
                signature=row.signature,
                rank=row.rank,
                tenant_cap=row.tenant_cap,
                run_cap=row.run_cap,
                heads=tuple([Head(*head) for head in row.heads]),
                needs=needs(row.signature),
            )
            for row in rows
        ),
        tenant_in_flight=room.tenants,
        run_in_flight=room.runs,
        resource_room=room.resources,
        quota_room=room.quotas,
        estimates={kind.name: scopes.estimates.get(kind.name, kind.est_s) for kind in kinds},
        bundling=frozenset(kind.name for kind in kinds if kind.bundle),
        ramp_room=room.ramps.get(pool, {}),
    )


def _use(room: _Room, pool: str, picks: Sequence[Pick]) -> None:
    for pick in picks:
        flow = pick.flow
        _count(
            room,
            InFlight(
                pool,
                QUARANTINE if pick.quarantine else None,
                flow.tenant,
                flow.run,
                flow.signature,
                1,
                len(pick.tasks),
                flow.tenant_cap,
                flow.run_cap,
            ),
        )
        left = room.ramps.get(pool, {})
        for scope in (("priority", flow.priority), ("tenant", flow.tenant), ("run", flow.run)):
            if scope in left:
                left[scope] -= 1
        if room.tenants[flow.tenant] >= flow.tenant_cap:
            room.full_tenants.add(flow.tenant)
        if flow.run and flow.run_cap is not None and room.runs[flow.run] >= flow.run_cap:
            room.full_runs.add(flow.run)


def _commit(
    connection: Connection, topology: Topology, pool: str, picks: Sequence[Pick], *, epoch: int, publish: Publish
) -> int:
    leases: dict[int, NewLease] = {}
    for pick in picks:
        kind = registry.find(pick.kind)
        token = secrets.randbits(62)
        leases[token] = NewLease(
            token=token,
            pool=pool,
            via=QUARANTINE if pick.quarantine else None,
            tenant=pick.flow.tenant,
            run=pick.flow.run,
            priority=pick.flow.priority,
            kind=pick.kind,
            signature=pick.flow.signature,
            est_s=kind.est_s if kind else 1.0,
            timeout_s=kind.timeout_s if kind else 60.0,
            tasks=pick.tasks,
        )
    made = transitions.release(
        connection, list(leases.values()), epoch=epoch, served_flows=sorted({pick.flow.id for pick in picks})
    )
    messages = [_message(topology, lease, made[token]) for token, lease in leases.items() if token in made]
    try:
        publish(messages)
    except Unavailable:
        transitions.hand_back_unclaimed(connection, older_than_s=0, leases=list(made.values()))
        raise
    return len(messages)


def _message(topology: Topology, lease: NewLease, lease_id: int) -> Message:
    pool = lease.via or lease.pool
    prefork = topology.pools[pool].workers == "prefork"
    return Message(
        queue=f"{pool}.p{lease.priority}",
        kind=lease.kind,
        lease=lease_id,
        token=lease.token,
        time_limits_s=(lease.timeout_s + GRACE_S, lease.timeout_s) if prefork else None,
    )


def _look_again(connection: Connection, memory: Memory) -> None:
    """Look again at deleted flows whose time has come; each is looked at until no transaction can be that old."""
    now_s = time.monotonic()
    due = [entry for entry in memory.deleted if entry[0] <= now_s]
    if not due:
        return
    restored = snapshot.restore_flows(connection, [key for _, _, key in due])
    if restored:
        log.info("flows_restored", number=restored)
    later = [
        (now_s + LOOK_AGAIN_S[looked + 1], looked + 1, key) for _, looked, key in due if looked + 1 < len(LOOK_AGAIN_S)
    ]
    memory.deleted = [entry for entry in memory.deleted if entry[0] > now_s] + later


def needs(signature: str) -> tuple[tuple[str, int], ...]:
    """Read a resource signature.

    >>> needs("browser=1,llm:default=2"), needs("")
    ((('browser', 1), ('llm:default', 2)), ())
    """
    if not signature:
        return ()
    return tuple((name, int(n)) for name, _, n in (part.rpartition("=") for part in signature.split(",")))
