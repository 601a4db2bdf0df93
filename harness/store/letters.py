"""Dead letters: the tasks that are failed_terminal, newest first by when they died. They are rows of no other table.

Each look is bounded: by rows looked at, by characters, by events. Tracebacks are asked for apart, by who may see them.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from harness.policy.letters import MESSAGE_MAX_CHARS
from harness.store import sql
from harness.store.database import Connection

Place = tuple[datetime, int]  # when a letter died, and its id: a page begins before one

END_OF_TIME: Place = (datetime(9999, 1, 1, tzinfo=UTC), 2**63 - 1)  # a page that begins at the newest
EVENTS_SHOWN = 5
STEPS_SHOWN = 5
INPUT_CHARS = 2000
EVERY_CHAR = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Looked:
    """What a letter's reason is made of. `message`: its beginning."""

    id: int
    dead_at: datetime
    tenant: int
    kind: str
    error_class: str
    message: str

    @property
    def place(self) -> Place:
        """Where it stands."""
        return self.dead_at, self.id


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter. `input`: JSON text, its first characters of `input_chars`; `events`: the last ones, newest first.

    `steps`: the last ones that began, newest first, of `steps_finished` and what is unfinished.

    `started`, `ended`, `slot_s`: of the last attempt, if there was one (a task may expire before its first).
    """

    id: int
    public_id: uuid.UUID
    tenant: str
    run: uuid.UUID | None
    kind: str
    version: int
    pool: str
    priority: int
    dead_at: datetime
    created_at: datetime
    error_class: str
    message: str
    attempts_used: int
    lost_starts: int
    token_epoch: int
    title: str | None
    input: str
    input_chars: int
    started: datetime | None
    ended: datetime | None
    slot_s: float | None
    events: list[dict[str, Any]]
    steps: list[dict[str, Any]]
    steps_finished: int


def looked(
    connection: Connection,
    *,
    tenant: int | None,
    kind: str | None = None,
    before: Place = END_OF_TIME,
    scan: int,
) -> list[Looked]:
    """Return letters that died before a place, newest first. `tenant` None: of all that the connection sees.

    All of them, at most `scan`; those of other kinds than `kind` without their own class and message.
    """
    if kind is not None and "\0" in kind:
        return []  # no name holds one, and PostgreSQL takes no such text
    name = "letters/looked" if tenant is None else "letters/looked_of_tenant"
    cursor = connection.execute(
        sql.load(name),
        {
            "tenant": tenant,
            "kind": kind,
            "before": before[0],
            "before_id": before[1],
            "chars": MESSAGE_MAX_CHARS,
            "scan": scan,
        },
        prepare=False,  # planned each time: a plan from when there were few letters may read them all
    )
    return [Looked(*row) for row in cursor]


def whole(connection: Connection, tasks: Sequence[int], *, input_chars: int = INPUT_CHARS) -> list[Letter]:
    """Return letters by id, in the order asked for; those that are no letters any more are left out."""
    cursor = connection.execute(
        sql.load("letters/whole"),
        {"tasks": list(tasks), "chars": input_chars, "events": EVENTS_SHOWN, "steps": STEPS_SHOWN},
    )
    found = {row[0]: Letter(*row) for row in cursor}
    return [found[task] for task in tasks if task in found]


def traceback(connection: Connection, task: int) -> str | None:
    """Return the traceback of a task's last attempt. For operators alone: the caller has checked that."""
    row = connection.execute(sql.load("letters/traceback"), {"task": task}).fetchone()
    return row[0] if row else None


def ids(connection: Connection, tasks: Sequence[uuid.UUID]) -> dict[uuid.UUID, int]:
    """Return the ids of tasks by their public ids, of those that the connection sees."""
    cursor = connection.execute("SELECT public_id, id FROM task WHERE public_id = ANY(%s::uuid[])", (list(tasks),))
    return dict(cursor.fetchall())
