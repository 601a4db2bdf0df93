"""What must be known to send ended tasks again, and the lock under which a tenant's room for them is counted.

The tasks themselves are written by store.transitions.redrive alone.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from harness.store import sql
from harness.store.database import Connection


@dataclass(frozen=True, slots=True)
class Facts:
    """What must be known of a task to send it again, what its ended attempts have used, and the steps they finished."""

    id: int
    public_id: uuid.UUID
    tenant: int
    state: str
    kind: str
    version: int
    signature: str
    priority: int
    token_epoch: int
    title: str | None
    tags: list[str] | None
    schedule: uuid.UUID | None
    attempts: int
    slot_s: float
    tokens: int
    usd: float | None
    steps: int


def facts(connection: Connection, tasks: Sequence[int]) -> list[Facts]:
    """Return what must be known of tasks, by id; those that the connection doesn't see are left out."""
    return [Facts(*row) for row in connection.execute(sql.load("ended/facts"), {"tasks": list(tasks)})]


def same_input(connection: Connection, task: int, text: str) -> bool:
    """Whether a task's input is this JSON text, as a value."""
    row = connection.execute(sql.load("ended/same_input"), {"task": task, "input": text}).fetchone()
    return bool(row and row[0])


def means(connection: Connection, kinds: Sequence[str]) -> dict[str, float]:
    """Return how long tasks of these kinds take, in seconds, of those that have been measured."""
    return dict(connection.execute(sql.load("ended/means"), {"kinds": list(kinds)}).fetchall())


def lock(connection: Connection, tenant: int) -> None:
    """Let nobody else send tasks of this tenant again until the transaction ends: what is counted then still holds."""
    connection.execute("SELECT pg_advisory_xact_lock(hashtext('harness_redrive'), %s)", (tenant,))


def unfinished(connection: Connection, tenant: int, *, most: int) -> int:
    """Count a tenant's unfinished tasks, but no further than `most`."""
    row = connection.execute(sql.load("submit/count_backlog"), {"tenant": tenant, "most": most}).fetchone()
    return int(row[0]) if row else 0
