"""The engine at a glance, for people who run it: what the demo's table and, later, the operations page show."""

from dataclasses import dataclass

from harness.store import sql
from harness.store.database import Connection
from harness.store.sessions import DEAD_AFTER_S


@dataclass(frozen=True, slots=True)
class Overview:
    """Slots and leases by pool, waiting tasks by priority ("0".."3"), tasks by tenant and state, tasks by state."""

    slots: dict[str, int]
    in_flight: dict[str, int]
    backlog: dict[str, int]
    tenants: dict[str, dict[str, int]]
    states: dict[str, int]


@dataclass(frozen=True, slots=True)
class Wait:
    """How long tasks of one priority waited for their first start, in seconds."""

    priority: int
    p50_s: float
    p95_s: float
    number: int


def now(connection: Connection, *, since_id: int = 0) -> Overview:
    """Look once. Tasks by tenant and state are counted from task id `since_id` on."""
    row = connection.execute(sql.load("overview/now"), {"dead_after_s": DEAD_AFTER_S, "since_id": since_id}).fetchone()
    return Overview(**(row[0] if row else {}))


def waits(connection: Connection, *, since_id: int = 0) -> list[Wait]:
    """Return the waits for a first start, by priority."""
    return [Wait(*row) for row in connection.execute(sql.load("overview/waits"), {"since_id": since_id})]


def most_in_flight(connection: Connection, *, since_id: int = 0) -> dict[str, int]:
    """Return the most attempts that ran at once, by pool, from what they recorded."""
    return {row[0]: row[1] for row in connection.execute(sql.load("overview/most_in_flight"), {"since_id": since_id})}
