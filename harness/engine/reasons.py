"""Why flows wait, looked at once a second: a thread of the leading dispatcher, with its own connection.

Level-triggered: each pass asks what binds every flow now and writes what isn't so noted, so a missed pass or a crash
leaves nothing wrong for longer than until the next. Of the thread that releases it takes only what the last plans said,
values that never change; it locks nothing that a release, a claim or a settle wants.

A pass looks at WINDOW flows and writes CHANGES_MOST rows at most; the next one goes on. It takes REST times its own
time off, so that with many flows the notes get older, not the work.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import psycopg

from harness.kinds import registry
from harness.policy import binding, known, outlook, ramp, room, shortage
from harness.policy.binding import Flow, FlowKey
from harness.policy.outlook import Course
from harness.policy.reasons import Code, Key, Reason
from harness.policy.settings import QUARANTINE, SYSTEM, Topology
from harness.store import leader, money, reasons, resources, snapshot
from harness.store.database import Connection
from harness.store.reasons import PoolStands
from harness.telemetry import logs

EVERY_S = 1.0
REST = 4.0  # a fifth of one core at most
WINDOW = 20_000  # flows in one pass
CHANGES_AT_ONCE = 500  # in one statement: some 20 ms
CHANGES_MOST = 5000  # in one pass: what is left is found again by the next
READ_AGAIN_S = 60.0  # what is noted is read again so often, whatever this process believes
RECONNECT_S = 1.0
NO_CHARGES = 2**63 - 1  # what ended is the business of who releases
NOTHING_HELD: Mapping[int, str] = {}

log = logs.get(__name__)


@dataclass(slots=True)
class Noted:
    """What this process believes to be noted. `open` None: it must be read first."""

    open: dict[FlowKey, Key] | None = None
    read_s: float = 0.0
    doubted: set[FlowKey] = field(default_factory=set)  # said by the last look alone to wait for their turn
    after: int = 0  # id of the last flow of the window before
    seen: set[FlowKey] = field(default_factory=set)  # since the first window
    pools: tuple[PoolStands, ...] = ()
    tenants: dict[str, set[int]] = field(default_factory=dict)  # that wait, by pool, since the first window


@dataclass(frozen=True, kw_only=True, slots=True)
class Passed:
    """What a pass did: flows looked at, rows that ended and began. `more`: not all flows were looked at yet."""

    flows: int = 0
    ended: int = 0
    begun: int = 0
    more: bool = False


def run(
    connect: Callable[[], Connection],
    topology: Topology,
    held: Callable[[], Mapping[int, str]],
    course: Course,
    *,
    epoch: int,
    over: threading.Event,
) -> None:
    """Pass over the flows until `over` is set or another leads; a connection that breaks is opened anew.

    `held`: what the last plans said of flows (by id); `course`: what the leader makes of resources.
    """
    wait_s = EVERY_S
    while not over.is_set():
        noted = Noted()
        try:
            with connect() as connection:
                while not over.wait(wait_s):
                    if not leader.holds(connection, epoch):
                        return  # the leading thread is about to find out, too
                    began_s = time.monotonic()
                    pass_over(connection, topology, noted, held(), course, epoch=epoch)
                    wait_s = max(EVERY_S, REST * (time.monotonic() - began_s))
        except psycopg.Error as error:
            log.warning("reasons_failed", error=str(error).strip())
            over.wait(RECONNECT_S)


def pass_over(
    connection: Connection,
    topology: Topology,
    noted: Noted,
    held: Mapping[int, str] = NOTHING_HELD,
    course: Course | None = None,
    *,
    epoch: int,
) -> Passed:
    """Look at what binds the flows, and note what has changed. Changes `noted`. Raises: psycopg.Error.

    That a flow waits for its turn is believed at the second look: between two tasks every cap has room for a moment.
    """
    # 1. Load: what is noted, the next flows
    now_s = time.monotonic()
    if noted.open is None or now_s - noted.read_s >= READ_AGAIN_S:
        noted.open = {key: reason.key for key, reason in reasons.noted(connection).items()}
        noted.read_s = now_s
    flows, following = reasons.flows(connection, after=noted.after, most=WINDOW)
    if not flows and not noted.open and not any(pool.tenants for pool in noted.pools):
        noted.after = 0
        return Passed()
    # 2. Decide: what binds each
    facts = _facts(connection, topology, noted, held, course or Course())
    changes = _changes(flows, facts, noted)
    for flow in flows:
        noted.seen.add(flow.key)
        noted.tenants.setdefault(flow.key[0], set()).add(flow.key[2])
    noted.after = following or 0
    if following is None:
        changes += [(key, None) for key in noted.open.keys() - noted.seen]
    # 3. Commit what has changed
    ended, begun = _write(connection, changes, noted, epoch=epoch)
    if following is None:
        _note_pools(connection, facts.room, noted, epoch=epoch)
        noted.doubted &= noted.seen
        noted.seen, noted.tenants = set(), {}
    return Passed(flows=len(flows), ended=ended, begun=begun, more=following is not None)


def _facts(
    connection: Connection, topology: Topology, noted: Noted, held: Mapping[int, str], course: Course
) -> binding.Facts:
    pauses = reasons.pauses(connection)
    scopes = snapshot.scopes(connection)
    in_use = snapshot.in_use(connection, charged=NO_CHARGES)
    now_s = time.monotonic()
    if course.outlook is None:  # no tick yet, so nothing was released
        course = Course()
        course.follow(outlook.configured(topology.resources.values(), taken_s=now_s), in_use.flight)
    capacities, urgent = course.capacities(now_s)
    left = room.measure(
        in_use.slots,
        pauses=scopes.pauses,
        capacities=capacities,
        quotas=scopes.quotas,
        flight=in_use.flight,
        urgent=urgent,
        tenant_caps=course.tenant_caps,
        level=in_use.level,
    )
    ramped_pools: dict[str, int] = {}
    ramped: dict[str, ramp.Left] = {}
    if scopes.ramps:
        leases = snapshot.leases_by_scope(connection)
        ramped_pools, ramped = ramp.left(scopes.ramps, leases, in_use.slots, aged_s=0.0)
    return binding.Facts(
        room=left,
        capacities=capacities,
        quotas={(tenant, scope, name): cap for tenant, scope, name, cap in scopes.quotas},
        pauses=pauses,
        kinds=known.know(registry.all_kinds(), scopes.estimates),
        beyond=money.beyond(connection),
        waiting={stands.pool: stands.tenants for stands in noted.pools},
        held=held,
        downstreams=_downstreams(connection, topology, course, now_s),
        ramped_pools=ramped_pools,
        ramped=ramped,
    )


def _downstreams(
    connection: Connection, topology: Topology, course: Course, now_s: float
) -> dict[str, shortage.Downstream]:
    assert course.outlook is not None
    live, allowed, trends = course.outlook.live, course.allowed(now_s), course.trends
    lowered = [name for name, one in live.items() if one.limit < topology.resources[name].capacity]
    changed = resources.last_changes(connection, lowered) if lowered else {}
    return {
        name: shortage.stands(
            topology.resources[name],
            one,
            trend=trends.get(name),
            allowed=allowed.get(name),
            changed_s=changed[name].at_s if name in changed else None,
        )
        for name, one in live.items()
    }


def _changes(flows: Sequence[Flow], facts: binding.Facts, noted: Noted) -> list[tuple[FlowKey, Reason | None]]:
    assert noted.open is not None
    bind = binding.binder(facts)
    # Most flows share a few reasons, and a key costs as much as all of the rest. The reason is kept, so is its id.
    keys: dict[int, tuple[Reason, Key]] = {}
    changes: list[tuple[FlowKey, Reason | None]] = []
    for flow in flows:
        reason = bind(flow)
        if (found := keys.get(id(reason))) is None:
            found = keys[id(reason)] = (reason, reason.key)
        key = found[1]
        if noted.open.get(flow.key) == key:
            noted.doubted.discard(flow.key)
        elif reason.code == Code.TURN and flow.key not in noted.doubted:
            noted.doubted.add(flow.key)
        else:
            noted.doubted.discard(flow.key)
            changes.append((flow.key, reason))
    return changes


def _write(
    connection: Connection, changes: Sequence[tuple[FlowKey, Reason | None]], noted: Noted, *, epoch: int
) -> tuple[int, int]:
    assert noted.open is not None
    all_ended = all_begun = 0
    for start in range(0, min(len(changes), CHANGES_MOST), CHANGES_AT_ONCE):
        batch = changes[start : start + CHANGES_AT_ONCE]
        ended, begun = reasons.note(connection, batch, epoch=epoch)
        all_ended, all_begun = all_ended + ended, all_begun + begun
        expected = sum(key in noted.open for key, _ in batch), sum(reason is not None for _, reason in batch)
        if (ended, begun) != expected:  # another leads, or wrote at the same moment: read what is so
            noted.open = None
            break
        for key, reason in batch:
            if reason is None:
                noted.open.pop(key, None)
            else:
                noted.open[key] = reason.key
    return all_ended, all_begun


def _note_pools(connection: Connection, left: room.Room, noted: Noted, *, epoch: int) -> None:
    stands = tuple(
        PoolStands(
            pool=pool,
            slots=slots,
            free=max(0, left.free.get(pool, 0)),
            tenants=len(noted.tenants.get(pool, ())),
        )
        for pool, slots in sorted(_pools(left, noted.tenants))
    )
    if stands != noted.pools:
        reasons.note_pools(connection, stands, epoch=epoch)
        noted.pools = stands


def _pools(left: room.Room, waiting: Iterable[str]) -> Iterable[tuple[str, int]]:
    """The pools that have places or work, and quarantine."""
    for pool in {*left.slots, *waiting, QUARANTINE} - {SYSTEM}:
        yield pool, left.slots.get(pool, 0)
