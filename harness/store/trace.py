"""Reads what a recorded trace is made of: tasks with their events, and what stood beside them. It writes nothing."""

import uuid
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from harness.store import sql
from harness.store.database import Connection
from harness.store.sessions import DEAD_AFTER_S

PAGE = 1000


@dataclass(frozen=True, slots=True)
class TaskTrace:
    """A task and all that happened to it, as (epoch seconds, event, from, to)."""

    id: int
    submitted_s: float
    tenant: int
    run: int
    kind: str
    pool: str
    priority: int
    signature: str
    events: tuple[tuple[float, str, str | None, str], ...]


@dataclass(frozen=True, slots=True)
class Released:
    """A task that was just released. `ready_s`: since when it might run (epoch seconds)."""

    lease: int
    task: uuid.UUID
    pool: str
    ready_s: float


def released(connection: Connection, leases: Sequence[int]) -> list[Released]:
    """Return the tasks on these leases; for who traces, between the release's commit and its messages."""
    cursor = connection.execute(sql.load("trace/released"), {"leases": list(leases)})
    return [Released(*row) for row in cursor]


def tasks(
    connection: Connection,
    *,
    run: uuid.UUID | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    page: int = PAGE,
) -> Iterator[TaskTrace]:
    """Yield the tasks of a run, or those that were submitted in [since, until), oldest first; page by page."""
    after = 0
    while True:
        parameters = {"after": after, "run": run, "since": since, "until": until, "most": page}
        rows = connection.execute(sql.load("trace/tasks"), parameters).fetchall()
        for row in rows:
            task, submitted_s, tenant, number, kind, pool, priority, signature, events = row
            happened = tuple((at_s, event, before, to) for at_s, event, before, to in events)
            yield TaskTrace(task, submitted_s, tenant, number, kind, pool, priority, signature, happened)
        if len(rows) < page:
            return
        after = rows[-1][0]


def facts(connection: Connection, *, tenants: Collection[int], runs: Collection[int]) -> dict[str, Any]:
    """Return tenants (id, cap, weight, backlog quota, top priority, quotas), runs, slots and estimates."""
    parameters = {"tenants": list(tenants), "runs": list(runs), "dead_after_s": DEAD_AFTER_S}
    row = connection.execute(sql.load("trace/facts"), parameters).fetchone()
    found: dict[str, Any] = row[0] if row else {}
    return found
