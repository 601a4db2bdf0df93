"""What people and programs read: tasks, runs, traces, readiness. One statement each; nothing here writes.

Under role `web` the rows are those of the tenant that `as_tenant` or `held_to_tenant` names; none: no rows.
"""

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from harness.policy.admission import TenantFacts
from harness.policy.errors import NotFound
from harness.policy.lifecycle import State
from harness.store import sql
from harness.store.database import Connection
from harness.store.sessions import DEAD_AFTER_S

LAST_ID = 2**63 - 1  # a page that begins at the newest
LAST_SEQ = 2**31 - 1
SCAN_ROWS = 5000  # looked at for one page of a list, whatever the filter: some 10 ms


@dataclass(frozen=True, slots=True)
class TaskView:
    """A task as its tenant sees it. `released`: it has a slot, or is about to.

    `schedule`, `scheduled_for`: the schedule that brought it, and its moment. `start_by` is void after the first claim.
    `degraded`: the cheaper form that it runs in, or ran in last; None: whole.
    `deferred`: by admission, until `not_before` at the latest.
    """

    id: int
    public_id: uuid.UUID
    run: uuid.UUID | None
    kind: str
    version: int
    pool: str
    priority: int
    state: str
    ready: bool
    holds: list[str]
    want: str | None
    attempts_used: int
    lost_starts: int
    postponements: int
    created_at: datetime
    not_before: datetime | None
    start_by: datetime | None
    deadline: datetime | None
    first_claimed_at: datetime | None
    finished_at: datetime | None
    released: bool
    output: Any
    error: Any
    title: str | None
    tags: list[str] | None
    schedule: uuid.UUID | None
    scheduled_for: datetime | None
    degraded: str | None
    deferred: bool

    @property
    def depends(self) -> bool:
        """Whether tasks that it depends on keep it out of its line: nothing else does without a time."""
        return self.state == State.QUEUED and not self.ready and not self.released and self.not_before is None


@dataclass(frozen=True, slots=True)
class EventView:
    """One trace event."""

    seq: int
    at: datetime
    event: str
    from_state: str | None
    to_state: str
    actor: str
    data: Any


@dataclass(frozen=True, slots=True)
class RunView:
    """A run. `states` counts its tasks, spawned ones included; `size` is how many it was submitted with."""

    id: int
    public_id: uuid.UUID
    name: str
    size: int
    fanout_cap: int | None
    want: str | None
    created_at: datetime
    states: dict[str, int]


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether a dispatcher leads, and how many worker processes live and take new work."""

    leading: bool
    live_sessions: int
    open_sessions: int


@contextmanager
def as_tenant(connection: Connection, tenant: int) -> Iterator[datetime]:
    """Act for one tenant in a transaction of its own; the setting ends with it. Yields the database's time."""
    with connection.transaction():
        row = connection.execute(
            "SELECT set_config('harness.tenant', %s, true), clock_timestamp()", (str(tenant),)
        ).fetchone()
        assert row is not None
        yield row[1]


@contextmanager
def held_to_tenant(connection: Connection, tenant: int) -> Iterator[None]:
    """Act for one tenant over several transactions, for verbs that open their own (transitions.act)."""
    connection.execute("SELECT set_config('harness.tenant', %s, false)", (str(tenant),))
    try:
        yield
    finally:
        if not connection.broken:  # a broken one is not used again
            connection.execute("SELECT set_config('harness.tenant', '', false)")


def tenant_facts(connection: Connection, tenant: int) -> TenantFacts | None:
    """Return what the door must know of a tenant."""
    row = connection.execute(sql.load("queries/tenant_facts"), {"tenant": tenant}).fetchone()
    return TenantFacts(id=row[0], name=row[1], top_priority=row[2], backlog_quota=row[3]) if row else None


def task(connection: Connection, public_id: uuid.UUID) -> TaskView | None:
    """Return one task."""
    row = connection.execute(sql.load("queries/task_one"), {"task": public_id}).fetchone()
    return TaskView(*row) if row else None


def the_task(connection: Connection, public_id: uuid.UUID) -> TaskView:
    """Return one task. Raises: NotFound."""
    found = task(connection, public_id)
    if found is None:
        raise NotFound(f"there is no task {public_id}")
    return found


def above(connection: Connection, public_id: uuid.UUID) -> list[tuple[uuid.UUID, str]]:
    """Return a task and those that it was spawned by, itself first, each with what it is called; at most 30."""
    cursor = connection.execute(sql.load("queries/task_above"), {"task": public_id})
    return [(row[0], row[1]) for row in cursor]


def tasks(
    connection: Connection,
    *,
    tenant: int,
    run: uuid.UUID | None = None,
    state: str | None = None,
    kind: str | None = None,
    priority: int | None = None,
    before: int = LAST_ID,
    most: int,
    scan: int = SCAN_ROWS,
) -> tuple[list[TaskView], int | None]:
    """Return a page of tasks with ids below `before`, newest first, and where the next page begins (None: nowhere).

    A page may be short, even empty, and have a next one: one look covers `scan` rows.
    """
    where = {"state": state, "kind": kind, "priority": priority, "before": before, "most": most, "scan": scan}
    if run is None:
        # Planned for this tenant each time: a plan for any tenant may walk past all tasks of the others.
        cursor = connection.execute(sql.load("queries/task_page"), where | {"tenant": tenant}, prepare=False)
    else:
        cursor = connection.execute(sql.load("queries/task_page_of_run"), where | {"run": run})
    rows = cursor.fetchall()
    return [TaskView(*row[1:]) for row in rows if row[1] is not None], rows[0][0] if rows else None


def trace(connection: Connection, task: int, *, after: int = 0, most: int) -> list[EventView]:
    """Return a task's events after seq `after`, in order."""
    cursor = connection.execute(sql.load("queries/task_trace"), {"task": task, "after": after, "most": most})
    return [EventView(*row) for row in cursor]


def last_trace(connection: Connection, task: int, *, before: int = LAST_SEQ, most: int) -> list[EventView]:
    """Return a task's events with a seq below `before`, the newest first."""
    cursor = connection.execute(sql.load("queries/task_last_trace"), {"task": task, "before": before, "most": most})
    return [EventView(*row) for row in cursor]


def news(connection: Connection, seen: Mapping[int, int]) -> dict[int, list[EventView]]:
    """Return what happened to tasks since: {task: its events after seq `seen[task]`}, of those with news."""
    found: dict[int, list[EventView]] = {}
    parameters = {"tasks": list(seen), "seqs": list(seen.values())}
    for task, *event in connection.execute(sql.load("queries/task_news"), parameters):
        found.setdefault(task, []).append(EventView(*event))
    return found


def run(connection: Connection, public_id: uuid.UUID) -> RunView | None:
    """Return one run with its tasks counted by state."""
    row = connection.execute(sql.load("queries/run_one"), {"run": public_id}).fetchone()
    return RunView(*row) if row else None


def tenant_of_task(connection: Connection, public_id: uuid.UUID) -> int | None:
    """Return whose a task is."""
    row = connection.execute("SELECT tenant_id FROM task WHERE public_id = %s", (public_id,)).fetchone()
    return row[0] if row else None


def input_of(connection: Connection, task: int) -> Any:
    """Return what a task was given; None when that is gone."""
    row = connection.execute("SELECT input FROM task_body WHERE task_id = %s", (task,)).fetchone()
    return row[0] if row else None


def tenant_named(connection: Connection, name: str) -> int | None:
    """Return the number of a tenant."""
    row = connection.execute("SELECT id FROM tenant WHERE name = %s", (name,)).fetchone()
    return row[0] if row else None


def run_and_tenant(connection: Connection, public_id: uuid.UUID) -> tuple[int, int] | None:
    """Return the number of a run, and whose it is."""
    row = connection.execute("SELECT id, tenant_id FROM run WHERE public_id = %s", (public_id,)).fetchone()
    return (row[0], row[1]) if row else None


def start_by_of_run(connection: Connection, public_id: uuid.UUID) -> datetime | None:
    """Return when the first of a run's tasks that haven't begun expires, if any may."""
    row = connection.execute(sql.load("queries/run_start_by"), {"run": public_id}).fetchone()
    return row[0] if row else None


def tasks_of_run(connection: Connection, public_id: uuid.UUID) -> list[uuid.UUID]:
    """Return the public ids of the tasks that a run was submitted with, in that order."""
    return [row[0] for row in connection.execute(sql.load("queries/tasks_of_run"), {"run": public_id})]


def readiness(connection: Connection) -> Readiness:
    """Return whether work can go on."""
    row = connection.execute(sql.load("queries/readiness"), {"dead_after_s": DEAD_AFTER_S}).fetchone()
    assert row is not None
    return Readiness(*row)
