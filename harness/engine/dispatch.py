"""The stage `dispatch`: one tick is a bounded snapshot, the pure plan, one commit under the epoch, then the messages.

Only the leader ticks. A crash between commit and publish is healed by the sweep; a publish that fails is taken back at
once. Nothing here waits for a worker.
"""

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from harness.engine.memory import Memory
from harness.kinds import registry
from harness.policy import known, look, outlook, room
from harness.policy.errors import Unavailable
from harness.policy.flow import Asked, Head
from harness.policy.line import Line
from harness.policy.plan import Pick, Plan
from harness.policy.settings import QUARANTINE, SYSTEM, Topology
from harness.store import clocks, flows, leader, money, snapshot, trace, transitions
from harness.store.database import Connection
from harness.store.message import Message
from harness.store.transitions import NewLease
from harness.telemetry import logs, traces

SCOPES_EVERY_S = 1.0
FOLD_EVERY_S = 1.0
CHARGES_WHOLE_EVERY_S = 1.0
# A deleted flow is looked at again after these times: longer than any transaction that may have counted on it.
LOOK_AGAIN_S = (0.3, 2.0, 15.0, 65.0)
ACTOR = "dispatcher"
GRACE_S = 5.0  # between a prefork child's soft and hard time limit

Publish = Callable[[Sequence[Message]], None]
log = logs.get(__name__)


def begin(connection: Connection, *, epoch: int) -> Memory:
    """Begin to lead: find every flow, and read the whole line. Returns the leader's memory."""
    began_s = time.monotonic()
    missing = flows.scan(connection)
    memory = Memory()
    after = 0
    while leader.renew(connection, epoch):
        rows = snapshot.line(connection, epoch=epoch, after=after)
        memory.begin(rows)
        if len(rows.flows) < snapshot.FLOWS_A_PAGE:
            break
        after = max(known.flow.id for known in rows.flows)
    log.info(
        "lead_taken",
        flows_found=missing,
        flows=sum(len(line) for line in memory.lines.values()),
        took_s=round(time.monotonic() - began_s, 3),
    )
    return memory


def tick(connection: Connection, topology: Topology, memory: Memory, *, epoch: int, publish: Publish) -> int:
    """Release what has room, in order. Returns how many leases were released. Raises: Unavailable (broker)."""
    released = 0
    # 1. Load, 2. decide, pool after pool
    for line, plan in decide(connection, topology, memory):
        line.apply(plan)
        memory.hold(plan)
        # 3. Commit, then tell the workers
        if plan.picks:
            released += _commit(connection, topology, memory, line, plan.picks, epoch=epoch, publish=publish)
        if plan.empty:
            _delete_empty(connection, memory, plan, epoch=epoch)
    _fold(connection, memory, epoch=epoch)
    _look_again(connection, memory)
    # 4. Let go on what waited for others that have ended
    if memory.notices:
        _, ready = transitions.rouse(connection, actor=ACTOR)
        memory.more = memory.more or ready > 0
    return released


def decide(connection: Connection, topology: Topology, memory: Memory) -> Iterator[tuple[Line, Plan]]:
    """Yield the plan of each pool that has flows and a free slot, with its line. The caller applies and commits it."""
    now_s = time.monotonic()
    scopes = _scopes(connection, memory, now_s)
    memory.places.clear()
    seen = snapshot.in_use(connection, charged=memory.look_from(now_s, CHARGES_WHOLE_EVERY_S))
    memory.learn(seen)
    capacities, urgent = _capacities(topology, memory, seen.flight, now_s)
    left = room.measure(
        seen.slots,
        pauses=scopes.pauses,
        capacities=capacities,
        quotas=scopes.quotas,
        flight=seen.flight,
        urgent=urgent,
        tenant_caps=memory.course.tenant_caps,
        level=seen.level,
    )
    left.reserved = {name: one for line in memory.lines.values() for name, one in line.reserved.items()}
    if scopes.ramps:
        held = snapshot.leases_by_scope(connection)
        room.slow_down(left, scopes.ramps, held, aged_s=time.monotonic() - memory.scopes_read_s)
    assert memory.kinds is not None  # gathered with the scopes
    standing = known.Standing(kinds=memory.kinds, pauses=scopes.pauses, beyond=memory.beyond.keys())
    for pool in topology.pools:
        line = memory.lines.get(pool)
        if pool == SYSTEM or line is None or not len(line) or left.free.get(pool, 0) <= 0:
            continue

        def answer(asked: Asked, line: Line = line) -> dict[int, Sequence[Head]]:
            return snapshot.heads(connection, asked, line.flows, memory.places)

        yield line, look.decide(pool, seen.now_s, room=left, standing=standing, line=line, look=answer)


def _capacities(
    topology: Topology, memory: Memory, flight: Sequence[room.InFlight], now_s: float
) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """What of resources may be in use now, by the last outlook: another thread brings it (engine.readings)."""
    seen = memory.outlook or outlook.configured(topology.resources.values(), taken_s=now_s)
    memory.course.follow(seen, flight)
    return memory.course.capacities(now_s)


def _scopes(connection: Connection, memory: Memory, now_s: float) -> snapshot.Scopes:
    if memory.scopes is None or now_s - memory.scopes_read_s >= SCOPES_EVERY_S:
        memory.scopes, memory.scopes_read_s = snapshot.scopes(connection), now_s
        memory.own(memory.scopes.tenants)
        memory.kinds = known.know(registry.all_kinds(), memory.scopes.estimates)
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
    memory: Memory,
    line: Line,
    picks: Sequence[Pick],
    *,
    epoch: int,
    publish: Publish,
) -> int:
    began_s = traces.now_s()
    picked = {secrets.randbits(62): pick for pick in picks}
    leases = [_lease(line.pool, token, pick, memory) for token, pick in picked.items()]
    done = transitions.release(connection, leases, memory.moved(), capacities=memory.course.caps, epoch=epoch)
    for token, pick in picked.items():
        _, n = done.made.get(token, (0, 0))
        if n < len(pick.tasks):  # the plan was applied: what wasn't made of it is given back
            missing = 1 - n / len(pick.tasks)
            line.refund(pick._replace(est_s=pick.est_s * missing))
    for token, passes in done.refused.items():
        flow = picked[token].flow
        log.info("lease_left_out", pool=line.pool, tenant=flow.tenant, run=flow.run, passes=passes)
        memory.scopes = None  # a cap has changed since they were read
    if traces.on():
        _trace(connection, [lease for lease, _ in done.made.values()], began_s)
    messages = [_message(topology, lease, done.made[lease.token][0]) for lease in leases if lease.token in done.made]
    try:
        publish(messages)
    except Unavailable:
        transitions.hand_back_unclaimed(connection, older_than_s=0, leases=[lease for lease, _ in done.made.values()])
        raise
    return len(messages)


def _trace(connection: Connection, leases: Sequence[int], began_s: float) -> None:
    """Trace how long tasks waited and their release, before a worker can know of it: then they may be gone."""
    for one in trace.released(connection, leases):
        traces.past(one.task, "wait", began_s=one.ready_s, ended_s=began_s, pool=one.pool)
        traces.past(one.task, "release", began_s=began_s, ended_s=traces.now_s(), pool=one.pool, lease=one.lease)


def _lease(pool: str, token: int, pick: Pick, memory: Memory) -> NewLease:
    kind = registry.find(pick.kind)
    return NewLease(
        token=token,
        pool=pool,
        via=QUARANTINE if pick.quarantine else None,
        tenant=pick.flow.tenant,
        run=pick.flow.run,
        priority=pick.flow.priority,
        lane=pick.lane,
        kind=pick.kind,
        signature=pick.signature,
        est_s=pick.est_s / len(pick.tasks),
        cost=pick.cost,
        timeout_s=kind.timeout_s if kind else 60.0,
        tasks=pick.tasks,
        places=tuple([memory.places[task] for task in pick.tasks]),
        degraded=pick.form.name or None,
    )


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


def _delete_empty(connection: Connection, memory: Memory, plan: Plan, *, epoch: int) -> None:
    gone = flows.delete_empty(connection, plan.empty, epoch=epoch)
    memory.forget_flows(plan.pool, gone)
    due_s = time.monotonic() + LOOK_AGAIN_S[0]
    memory.deleted += [(due_s, 0, key) for key in gone.values() if key is not None]


def _fold(connection: Connection, memory: Memory, *, epoch: int) -> None:
    """Write what moved and went with no release; once a second, or when it is much. Also the estimates."""
    now_s = time.monotonic()
    if now_s - memory.folded_s < FOLD_EVERY_S and not memory.full():
        return
    memory.folded_s = now_s
    moved, used, forgotten = memory.moved(), memory.used(), memory.forgotten()
    if moved or used or forgotten:
        clocks.fold(connection, moved, forgotten=forgotten, used=used, epoch=epoch, weight=known.ESTIMATE_WEIGHT)


def _look_again(connection: Connection, memory: Memory) -> None:
    """Look again at deleted flows whose time has come; each is looked at until no transaction can be that old."""
    now_s = time.monotonic()
    due = [entry for entry in memory.deleted if entry[0] <= now_s]
    if not due:
        return
    restored = flows.restore(connection, [key for _, _, key in due])
    if restored:
        log.info("flows_restored", number=restored)
    later = [
        (now_s + LOOK_AGAIN_S[looked + 1], looked + 1, key) for _, looked, key in due if looked + 1 < len(LOOK_AGAIN_S)
    ]
    memory.deleted = [entry for entry in memory.deleted if entry[0] > now_s] + later
