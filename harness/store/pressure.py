"""What signals are measured from, the level as it was last evaluated, and its changes. Nothing is decided here.

Who evaluates reads and writes in one transaction, under the lock of `engine.observe`.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from harness.policy.pressure import Change, Facts, Known, Level, Memory, Reading, State
from harness.policy.pressure.facts import ARRIVED_S, BIN_S, WINDOW_S, Arrived, Ended, Head, Held, Limit, Waits
from harness.policy.reasons import Code
from harness.policy.resources import Live, Resource
from harness.policy.settings import QUARANTINE, SYSTEM
from harness.store import resources, sql
from harness.store.database import Connection
from harness.store.resources import ResourceNow
from harness.store.sessions import DEAD_AFTER_S

# A flow that waits for one of these doesn't wait for capacity: its tenant, a person or a downstream would free it.
OWN = (
    Code.PAUSED,
    Code.TOO_LARGE,
    Code.BREAKER,
    Code.BLOCKED,
    Code.BUDGET,
    Code.TENANT_CAP,
    Code.RUN_CAP,
    Code.QUOTA,
    Code.SHARE,
    Code.FAN_OUT,
    Code.RAMP,
)
FLOWS_MOST = 5_000
ATTEMPTS_MOST = 2_000
ARRIVALS_MOST = 10_000
WAITS_LEAST = 5  # waits of a process in a minute, below which their 95th of 100 is one slow moment
STALE_S = 30.0  # a resource seen longer ago isn't known
ROUND_DIGITS = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Stored:
    """The last evaluation. `since_s`, `seen_s`, `now_s`: by the database's clock (epoch seconds)."""

    level: Level
    state: State
    memory: Memory
    since_s: float
    seen_s: float
    now_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """The level as everybody may know it; moments in epoch seconds."""

    level: Level
    since_s: float
    seen_s: float
    now_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Turned:
    """A change that is kept. `signals`: those that asked for it, the worst first."""

    at_s: float
    before: Level
    after: Level
    signals: Mapping[str, Reading]
    done: str


def facts(connection: Connection, configured: Mapping[str, Resource], *, connections: int, tasks: int) -> Facts:
    """Read what signals are measured from: one bounded statement, and how resources stand. Raises: psycopg.Error.

    `connections`: the budget of the database; `tasks`: so many waiting ones are counted, about.
    """
    row = connection.execute(
        sql.load("pressure/facts"),
        {
            "own": [str(code) for code in OWN],
            "flows": FLOWS_MOST,
            "tasks": tasks,
            "attempts": ATTEMPTS_MOST,
            "arrivals": ARRIVALS_MOST,
            "window_s": WINDOW_S,
            "arrived_s": ARRIVED_S,
            "bin_s": BIN_S,
            "dead_after_s": DEAD_AFTER_S,
        },
    ).fetchone()
    assert row is not None
    found = row[0]
    held = tuple(Held(*one) for one in found["held"])
    by_call = {name for name, one in configured.items() if one.held == "call"}
    waits_s: dict[str, float] = {}
    for name, n, p95_s in found["waits"]:
        if (n or 0) >= WAITS_LEAST:
            waits_s[name] = max(waits_s.get(name, 0.0), p95_s or 0.0)
    return Facts(
        slots={pool: n for pool, n in found["slots"] if pool not in (SYSTEM, QUARANTINE)},
        waiting=tuple(Waits(*one) for one in found["waiting"]),
        held=held,
        heads=tuple(Head(*one) for one in found["heads"]),
        arrived=tuple(Arrived(*one) for one in found["arrived"]),
        arrived_s=found["arrived_s"],
        ended=tuple(Ended(*one) for one in found["ended"]),
        ended_s=found["ended_s"],
        limits=_limits(connection, configured),
        connections_busy_ratio=found["busy"] / connections,
        waits_s=waits_s,
        databases=frozenset(waits_s.keys() - by_call),
    )


def last(connection: Connection) -> Stored | None:
    """Return the last evaluation. None: there was none."""
    row = connection.execute(sql.load("pressure/last")).fetchone()
    if row is None:
        return None
    state, memory = _loaded(row[1], Level(row[0]))
    return Stored(level=Level(row[0]), state=state, memory=memory, since_s=row[2], seen_s=row[3], now_s=row[4])


def keep(
    connection: Connection,
    state: State,
    memory: Memory,
    readings: Mapping[str, Reading],
    *,
    change: Change | None,
    done: str = "",
) -> None:
    """Keep an evaluation, and its change. In the transaction that read the last one."""
    connection.execute(
        sql.load("pressure/keep"),
        {
            "before": int(change.before if change else state.level),
            "after": int(state.level),
            "state": json.dumps({"machine": asdict(state), "memory": asdict(memory)}),
            "readings": json.dumps(_dumped(readings)),
            "signals": json.dumps(_dumped(change.signals if change else {})),
            "done": done,
        },
    )


def now(connection: Connection) -> Standing | None:
    """Return the level. None: nobody has evaluated it yet. Under role web, too."""
    row = connection.execute(
        "SELECT level, extract(epoch FROM since)::double precision, extract(epoch FROM seen_at)::double precision, "
        "extract(epoch FROM clock_timestamp())::double precision FROM level WHERE id = 1"
    ).fetchone()
    return None if row is None else Standing(level=Level(row[0]), since_s=row[1], seen_s=row[2], now_s=row[3])


def level(connection: Connection) -> Level:
    """Return the level alone; normal while nobody has evaluated it."""
    row = connection.execute("SELECT level FROM level WHERE id = 1").fetchone()
    return Level(row[0]) if row else Level.NORMAL


def readings(connection: Connection) -> dict[str, Reading]:
    """Return the readings of the last evaluation."""
    row = connection.execute("SELECT readings FROM level WHERE id = 1").fetchone()
    return {} if row is None else _read(row[0])


def changes(connection: Connection, *, most: int) -> list[Turned]:
    """Return the newest changes of the level, the newest first."""
    cursor = connection.execute(
        "SELECT extract(epoch FROM at)::double precision, before, after, signals, done FROM level_change "
        "ORDER BY at DESC, id DESC LIMIT %s",
        (most,),
    )
    return [
        Turned(at_s=row[0], before=Level(row[1]), after=Level(row[2]), signals=_read(row[3]), done=row[4])
        for row in cursor
    ]


def _limits(connection: Connection, configured: Mapping[str, Resource]) -> dict[str, Limit] | None:
    live = resources.effective(connection, configured)
    kept = resources.kept(connection)
    row = connection.execute("SELECT extract(epoch FROM clock_timestamp())::double precision").fetchone()
    assert row is not None
    found: dict[str, Limit] = {}
    for name, one in live.items():
        limit = limit_of(one, kept.get(name), now_s=row[0])
        if limit is None:
            return None
        found[name] = limit
    return found


def limit_of(live: Live, kept: ResourceNow | None, *, now_s: float) -> Limit | None:
    """Return how a resource stands; None: it is held by the call, and nobody has seen it lately."""
    if live.resource.held == "task":
        return Limit(limit=live.limit, in_use=0, calls=False)
    if kept is None or kept.seen_s is None or now_s - kept.seen_s > STALE_S:
        return None
    return Limit(limit=min(kept.limit_now, live.resource.capacity), in_use=kept.in_flight, calls=True)


def _dumped(found: Mapping[str, Reading]) -> dict[str, dict[str, Any]]:
    return {
        name: {"value": round(one.value, ROUND_DIGITS), "score": one.score, "missing": one.missing}
        for name, one in found.items()
    }


def _read(found: Mapping[str, Mapping[str, Any]]) -> dict[str, Reading]:
    """Return readings as they were dumped; jsonb keeps no order, so the worst come first."""
    ordered = sorted(found.items(), key=lambda item: (-item[1]["score"], item[0]))
    return {name: Reading(value=one["value"], score=one["score"], missing=one["missing"]) for name, one in ordered}


def _loaded(found: Mapping[str, Any], level: Level) -> tuple[State, Memory]:
    machine, memory = found["machine"], found["memory"]
    state = State(
        level=level,
        now_s=machine["now_s"],
        asked=Level(machine["asked"]),
        calm_s=machine["calm_s"],
        turns=tuple((at_s, up) for at_s, up in machine["turns"]),
        restless=None if machine["restless"] is None else Level(machine["restless"]),
        known={
            name: Known(readings=tuple(one["readings"]), at_s=one["at_s"]) for name, one in machine["known"].items()
        },
    )
    usual_s: Mapping[str, tuple[float, float]] = {
        kind: (p95_s, known_s) for kind, (p95_s, known_s) in memory["usual_s"].items()
    }
    return state, Memory(since_s=memory["since_s"], a_second=memory["a_second"], usual_s=usual_s)
