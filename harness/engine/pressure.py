"""Part of the stage `observe`: evaluate the level of pressure, every 5 s, and keep it as a row.

load (the last evaluation, the facts) -> decide (policy.pressure) -> commit (the row, and the change if there is one),
in one transaction under one advisory lock: two beats evaluate once. Who obeys the level reads the row; while nobody
evaluates, the last level holds, and the auditor says so (`level_late`). Facts that can't be read hold it as well.

In the same transaction it puts and ends the pauses of pressure (policy.pressure.pauses), and no other's: rows with an
end of their own, so that queues go on when nobody evaluates any more.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import psycopg

from harness.policy import pressure as policy
from harness.policy.holds import PRESSURE
from harness.policy.pressure import Change, Facts, Level, Memory, Pauses, Reading, State, course
from harness.policy.settings import Topology
from harness.store import evaluations, pauses, pressure
from harness.store.database import Connection
from harness.telemetry import logs

ONCE = 0x0B5E7E  # the advisory lock of `observe`
QUEUE = "pool_priority"  # the scope of what pressure pauses
APART_S = 4.0  # evaluations closer than this are one: two beats may come at different moments of the same 5 s
WHY_PAUSED = "the pressure is critical, and more urgent work waits here"  # everybody reads it
FACTS_MOST_S = 2.0  # reading them takes some 20 ms; when it takes this long the database is what is under pressure

log = logs.get(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """What an evaluation came to. `skipped`: another did it, or just has. `unread`: the facts couldn't be read.

    `paused`: the queues that it paused, and those that it let go. `facts`, `readings`: what it went by; facts None:
    skipped or unread.
    """

    skipped: bool = True
    unread: bool = False
    level: Level | None = None
    change: Change | None = None
    paused: Pauses = field(default_factory=Pauses)
    facts: Facts | None = None
    readings: Mapping[str, Reading] = field(default_factory=dict)


def judge(connection: Connection, topology: Topology) -> Judged:
    """Evaluate once, if nobody else does. Raises: psycopg.Error."""
    with connection.transaction():
        if not alone(connection):
            return Judged()
        # 1. Load
        last = pressure.last(connection)
        passed_s = policy.EVERY_S if last is None else last.now_s - last.seen_s
        if 0.0 <= passed_s < APART_S:
            return Judged(level=last.level if last else None)
        state = State() if last is None else last.state
        memory = Memory() if last is None else last.memory
        facts = _facts(connection, topology, memory)
        # 2. Decide
        found = dict.fromkeys(policy.SIGNALS, None) if facts is None else policy.measure(facts, memory)
        state, change = policy.step(state, found, passed_s, topology.pressure)
        if facts is not None:
            memory = policy.learn(memory, facts, max(0.0, min(passed_s, policy.STEP_MOST_S)))
        # 3. Commit
        done = policy.done(change.before, change.after) if change else ""
        seen = policy.read(state, topology.pressure)
        pressure.keep(connection, state, memory, seen, change=change, done=done)
        evaluations.keep(connection, state.level, seen, course.of(facts))
        paused = Pauses() if facts is None else _pause(connection, state.level, facts)
    if change is not None:
        _tell(change, done)
    if paused.put or paused.end:
        log.warning("queues_paused" if paused.put else "queues_resumed", paused=paused.put, resumed=paused.end)
    return Judged(
        skipped=False,
        unread=facts is None,
        level=state.level,
        change=change,
        paused=paused,
        facts=facts,
        readings=seen,
    )


def alone(connection: Connection) -> bool:
    """Whether nobody else observes now; until the caller's transaction ends."""
    row = connection.execute("SELECT pg_try_advisory_xact_lock(%s)", (ONCE,)).fetchone()
    return bool(row and row[0])


def _pause(connection: Connection, level: Level, facts: Facts) -> Pauses:
    """Pause what the level pauses, and end what it no longer does; not without facts: what stands has its end."""
    standing = pauses.standing(connection, scope=QUEUE, source=PRESSURE)
    if level < Level.CRITICAL and not standing:
        return Pauses()
    now = pressure.now(connection)
    since_s = now.now_s - now.since_s if now is not None else 0.0
    waiting = {(one.pool, one.priority) for one in facts.waiting if one.number}
    found = policy.decide_pauses(level, since_s, waiting=waiting, standing=standing)
    if found.put:
        pauses.put_for(
            connection,
            scope=QUEUE,
            keys=found.put,
            source=PRESSURE,
            author=PRESSURE,
            reason=WHY_PAUSED,
            seconds=found.left_s,
        )
    for key in found.end:
        pauses.end(connection, scope=QUEUE, key=key, source=PRESSURE, by=PRESSURE)
    return found


def _facts(connection: Connection, topology: Topology, memory: Memory) -> policy.Facts | None:
    tasks = policy.depth_told(memory, topology.pressure["queue_depth"].critical)
    try:
        with connection.transaction():
            connection.execute(f"SET LOCAL statement_timeout = {round(1000 * FACTS_MOST_S)}")
            return pressure.facts(
                connection, topology.resources, connections=topology.database_connections, tasks=tasks
            )
    except psycopg.Error as error:
        if connection.closed:
            raise
        log.warning("pressure_unread", error=str(error).strip(), hint="the level holds until signals can be read")
        return None


def _tell(change: Change, done: str) -> None:
    log.warning(
        "level_changed" if change.after > change.before else "level_lowered",
        before=change.before.word,
        after=change.after.word,
        signals={name: round(one.value, 4) for name, one in change.signals.items()},
        done=done,
    )
