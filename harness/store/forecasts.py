"""Forecasts of tasks and runs: what a pass is made from, what it keeps, and what people read of it. Decides nothing.

A pass reads in one snapshot (`reading`), so that no task both waits and runs; it has the lock meanwhile.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from harness.policy.eta import Trust
from harness.store import sql
from harness.store.database import Connection

ONCE = 0x0E7A  # the advisory lock of a pass
FLOWS_MOST = 500
COUNTED_MOST = 20_000  # tasks in line that are counted, evenly by flow: 10 ms
OF_RUN_MOST = 2000  # unfinished tasks of a run that are counted; of more than a pass looks at, its end isn't told
PLANNED_MOST, PLANNED_S = 200, 3600.0
ATTEMPTS_MOST = 3000  # of all kinds: of each kind the last SERVICES_MOST of them tell how long it takes
SERVICES_MOST = 300
ARRIVALS_MOST, ARRIVALS_S = 5000, 3600.0
STREAMS_MOST = 200
RATE_S = 300.0  # of starts, for backlog over rate
CLOCKS_MOST = 10_000
BORNE_MOST = 1000  # first forecasts that are read, the newest
BORNE_KEPT = 2000
READ_MOST_S = 2.0  # the look takes some 30 ms; one that takes this long is given up, and the last pass gets old


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskRow:
    """A forecast of a task as it is written; moments in epoch seconds."""

    task: int
    tenant: int
    position: int | None = None
    start_p50: float | None = None
    start_p90: float | None = None
    end_p50: float | None = None
    end_p90: float | None = None
    reason: str = ""
    subject: str = ""
    moved: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRow:
    """A forecast of a run as it is written."""

    run: int
    tenant: int
    end_p50: float | None = None
    end_p90: float | None = None
    reason: str = ""
    moved: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class First:
    """The first forecast of a task, in seconds from when it was made. `plain_s`: backlog over rate."""

    task: int
    priority: int
    raw_p50_s: float
    raw_p90_s: float
    shown_p50_s: float | None
    shown_p90_s: float | None
    plain_s: float


@dataclass(frozen=True, slots=True)
class Expected:
    """What is expected of a task or run, as people read it. `reason`: why there is no range, if there is none."""

    position: int | None
    start_p50: datetime | None
    start_p90: datetime | None
    end_p50: datetime | None
    end_p90: datetime | None
    reason: str
    subject: str
    moved: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Pass:
    """The last pass. `age_s`: how long ago it was made; `calibration`: figures by name."""

    at: datetime
    age_s: float
    took_s: float
    waiting: int
    looked_at: int
    trust: Trust
    calibration: Mapping[str, Any]


def lock(connection: Connection) -> bool:
    """Whether nobody else makes a pass now; until `unlock`, or the connection's end."""
    row = connection.execute("SELECT pg_try_advisory_lock(%s)", (ONCE,)).fetchone()
    return bool(row and row[0])


def unlock(connection: Connection) -> None:
    """Let the next one make a pass."""
    if not connection.broken:
        connection.execute("SELECT pg_advisory_unlock(%s)", (ONCE,))


@contextmanager
def reading(connection: Connection) -> Iterator[None]:
    """Read all of it in one snapshot. Raises: psycopg.Error when it takes too long."""
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        connection.execute(f"SET LOCAL statement_timeout = {round(1000 * READ_MOST_S)}")
        yield


def waiting(connection: Connection, *, most: int) -> Mapping[str, Any]:
    """Return the tasks that a pass looks at, at most so many (foresee/waiting.sql)."""
    parameters = {
        "flows": FLOWS_MOST,
        "most": most,
        "counted": COUNTED_MOST,
        "planned": PLANNED_MOST,
        "planned_s": PLANNED_S,
    }
    return _object(connection, "foresee/waiting", parameters)


def past(connection: Connection) -> Mapping[str, Any]:
    """Return what runs, how long attempts took, and what came lately (foresee/past.sql)."""
    parameters = {
        "attempts": ATTEMPTS_MOST,
        "services": SERVICES_MOST,
        "arrivals": ARRIVALS_MOST,
        "streams": STREAMS_MOST,
        "span_s": ARRIVALS_S,
        "rate_s": RATE_S,
    }
    return _object(connection, "foresee/past", parameters)


def standing(connection: Connection, *, tenants: Collection[int], runs: Collection[int]) -> Mapping[str, Any]:
    """Return clocks, credits and runs, of these (foresee/standing.sql)."""
    parameters = {"tenants": list(tenants), "runs": list(runs), "clocks": CLOCKS_MOST, "counted": OF_RUN_MOST}
    return _object(connection, "foresee/standing", parameters)


def last(connection: Connection) -> Mapping[str, Any]:
    """Hold first forecasts against what has come, and return what the last pass left (foresee/last.sql)."""
    return _object(connection, "foresee/last", {"borne": BORNE_MOST})


def keep(
    connection: Connection,
    tasks: Sequence[TaskRow],
    runs: Sequence[RunRow],
    first: Sequence[First],
    *,
    at_s: float,
    took_s: float,
    waiting: int,
    most: int,
    trust: Trust,
    calibration: Mapping[str, Any],
    under: Mapping[str, Any],
) -> int:
    """Keep a pass. Returns how many tasks it tells of."""
    row = connection.execute(
        sql.load("foresee/keep"),
        {
            "tasks": json.dumps([asdict(one) for one in sorted(tasks, key=lambda one: one.task)]),
            "runs": json.dumps([asdict(one) for one in sorted(runs, key=lambda one: one.run)]),
            "first": json.dumps([asdict(one) for one in sorted(first, key=lambda one: one.task)]),
            "at_s": at_s,
            "took_s": took_s,
            "waiting": waiting,
            "looked_at": len(tasks),
            "most": most,
            "trust": str(trust),
            "calibration": json.dumps(calibration),
            "under": json.dumps(under),
            "kept": BORNE_KEPT,
        },
    ).fetchone()
    return int(row[0]) if row else 0


def look_at_less(connection: Connection, *, most: int) -> None:
    """Note that a pass was given up: the next one looks at so many tasks."""
    connection.execute(
        "INSERT INTO forecast_pass (id, at, took_s, waiting, looked_at, most, trust, calibration, under) "
        "VALUES (1, 'epoch', 0, 0, 0, %s, %s, '{}', '{}') ON CONFLICT (id) DO UPDATE SET most = excluded.most",
        (most, str(Trust.LEARNING)),
    )


def of_tasks(connection: Connection, tasks: Sequence[int]) -> dict[int, Expected]:
    """Return what is expected of tasks, of those that the last pass looked at. Under role web: of the tenant's own."""
    cursor = connection.execute(
        "SELECT task_id, position, start_p50, start_p90, end_p50, end_p90, reason, subject, moved, at "
        "FROM forecast WHERE task_id = ANY(%s)",
        (list(tasks),),
    )
    return {row[0]: Expected(*row[1:]) for row in cursor}


def of_run(connection: Connection, run: int) -> Expected | None:
    """Return what is expected of a run: its end."""
    row = connection.execute(
        "SELECT NULL::integer, NULL::timestamptz, NULL::timestamptz, end_p50, end_p90, reason, '', moved, at "
        "FROM run_forecast WHERE run_id = %s",
        (run,),
    ).fetchone()
    return Expected(*row) if row else None


def outside(connection: Connection, run: int) -> tuple[int, int, int]:
    """Return how many tasks of a run wait for a decision, are held (or wait for children), wait for others of it."""
    row = connection.execute(sql.load("foresee/outside"), {"run": run}).fetchone()
    assert row is not None
    return row[0], row[1], row[2]


def last_pass(connection: Connection) -> Pass | None:
    """Return the last pass, and how forecasts are borne out. None: there was none yet."""
    row = connection.execute(
        "SELECT at, extract(epoch FROM clock_timestamp() - at)::double precision, took_s, waiting, looked_at, trust, "
        "calibration FROM forecast_pass WHERE id = 1"
    ).fetchone()
    return None if row is None else Pass(row[0], row[1], row[2], row[3], row[4], Trust(row[5]), row[6])


def _object(connection: Connection, name: str, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    row = connection.execute(sql.load(name), parameters).fetchone()
    assert row is not None
    found: Mapping[str, Any] = row[0]
    return found
