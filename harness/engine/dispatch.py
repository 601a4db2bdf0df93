"""The stage `dispatch`: one tick is a bounded snapshot, the pure plan, one commit under the epoch, then the messages.

Only the leader ticks. A crash between commit and publish is healed by the sweep; a publish that fails is taken back at
once. Nothing here waits for a worker.
"""

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from harness.kinds import registry
from harness.policy import look, room
from harness.policy import money as policy_money
from harness.policy.dispatch import Pick
from harness.policy.errors import Unavailable
from harness.policy.settings import QUARANTINE, SYSTEM, Topology
from harness.store import money, snapshot, transitions
from harness.store.database import Connection
from harness.store.message import Message
from harness.store.snapshot import FlowKey, Scopes
from harness.store.transitions import NewLease
from harness.telemetry import logs

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
    kinds: look.Kinds | None = None  # gathered when the scopes are read: that costs as much as a small plan
    scopes_read_s: float = 0.0
    deleted: list[tuple[float, int, FlowKey]] = field(default_factory=list)  # (due at, how often looked, key)
    seen: dict[str, look.Seen] = field(default_factory=dict)  # what the last look at a pool found
    beyond: dict[int, policy_money.Standing] = field(default_factory=dict)  # tenants whose budget is spent
    places: dict[int, str] = field(default_factory=dict)  # where the rows of this tick's heads lie


def begin(connection: Connection) -> Memory:
    """Begin to lead: find every flow. Returns the leader's empty memory."""
    missing = snapshot.scan_flows(connection)
    log.info("lead_taken", flows_found=missing)
    return Memory()


def tick(connection: Connection, topology: Topology, memory: Memory, *, epoch: int, publish: Publish) -> int:
    """Release what has room, in order. Returns how many leases were released. Raises: Unavailable (broker)."""
    released = 0
    # 1. Load, 2. decide, pool after pool
    for pool, decided in decide(connection, topology, memory):
        # 3. Commit, then tell the workers
        if picks := decided.picks:
            released += _commit(connection, topology, pool, picks, memory.places, epoch=epoch, publish=publish)
        if decided.empty:
            now_s = time.monotonic()
            keys = snapshot.delete_empty_flows(connection, decided.empty, epoch=epoch)
            memory.deleted += [(now_s + LOOK_AGAIN_S[0], 0, key) for key in keys]
    _look_again(connection, memory)
    return released


def decide(connection: Connection, topology: Topology, memory: Memory) -> Iterator[tuple[str, look.Decided]]:
    """Yield what is decided for each pool that has flows and a free slot. Only reads; the caller commits in between."""
    scopes = _scopes(connection, memory)
    memory.places.clear()
    in_use = snapshot.in_use(connection, [pool for pool in topology.pools if pool != SYSTEM])
    left = room.measure(
        in_use.slots,
        pauses=scopes.pauses,
        capacities={name: resource.capacity for name, resource in topology.resources.items()},
        quotas=scopes.quotas,
        flight=in_use.flight,
    )
    if scopes.ramps:
        held = snapshot.leases_by_scope(connection)
        room.slow_down(left, scopes.ramps, held, aged_s=time.monotonic() - memory.scopes_read_s)
    assert memory.kinds is not None  # gathered with the scopes
    standing = look.Standing(kinds=memory.kinds, pauses=scopes.pauses, beyond=memory.beyond.keys())
    for pool in in_use.with_flows:
        if left.free.get(pool, 0) > 0:
            seen = memory.seen.setdefault(pool, look.Seen())
            yield (
                pool,
                look.decide(pool, left, standing, seen, lambda asked: snapshot.flows(connection, asked, memory.places)),
            )


def _scopes(connection: Connection, memory: Memory) -> Scopes:
    now_s = time.monotonic()
    if memory.scopes is None or now_s - memory.scopes_read_s >= SCOPES_EVERY_S:
        memory.scopes, memory.scopes_read_s = snapshot.scopes(connection), now_s
        memory.kinds = look.know(registry.all_kinds(), memory.scopes.estimates)
        _look_at_budgets(connection, memory)
    return memory.scopes


def _look_at_budgets(connection: Connection, memory: Memory) -> None:
    beyond = money.beyond(connection)
    for tenant in beyond.keys() - memory.beyond.keys():
        log.info("budget_spent", tenant=tenant, period=beyond[tenant].period, limit_usd=beyond[tenant].limit_usd)
    memory.beyond = beyond


def _commit(
    connection: Connection,
    topology: Topology,
    pool: str,
    picks: Sequence[Pick],
    places: Mapping[int, str],
    *,
    epoch: int,
    publish: Publish,
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
            places=tuple([places[task] for task in pick.tasks]),
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
