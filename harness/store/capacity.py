"""What runs now and what it holds: worker processes, their slots at work, connections. Reads only."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.store import sql
from harness.store.database import Connection
from harness.store.sessions import DEAD_AFTER_S


@dataclass(frozen=True, kw_only=True, slots=True)
class Process:
    """A worker process that lives. `pools`: its slots by pool; `waits`: for connections, by resource (engine.waits)."""

    host: str
    pid: int
    pools: Mapping[str, int]
    connections: int
    waits: Mapping[str, Mapping[str, Any]]
    draining: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    """Harness's own database. `reserved`: connections that only superusers get; `at_work`: slots, by pool."""

    connections: int
    most: int
    reserved: int
    at_work: Mapping[str, int]


def processes(connection: Connection) -> list[Process]:
    """Return the worker processes that live, oldest first."""
    cursor = connection.execute(sql.load("capacity/processes"), {"dead_after_s": DEAD_AFTER_S})
    return [
        Process(host=row[0], pid=row[1], pools=row[2], connections=row[3], waits=row[4], draining=row[5])
        for row in cursor
    ]


def server(connection: Connection) -> Server:
    """Return how Harness's own database stands."""
    row = connection.execute(sql.load("capacity/now")).fetchone()
    assert row is not None
    return Server(connections=row[0], most=row[1], reserved=row[2], at_work=row[3])
