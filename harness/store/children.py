"""Children of tasks, and tasks that depend on others: what is read of them, and noted. No state changes here."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from harness.policy.children import Ranges
from harness.policy.lifecycle import State
from harness.store import sql
from harness.store.database import Connection
from harness.store.transitions import Again


@dataclass(frozen=True, slots=True)
class Result:
    """What a child left. JSON as text."""

    public_id: uuid.UUID
    kind: str
    output: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class EndedAbove:
    """A task after whose end others may have to be cancelled. `state`, `message`: None while it lives; `last`: notice.

    `public_id` None: it is gone.
    """

    task: int
    last: int
    public_id: uuid.UUID | None
    state: str | None
    message: str | None


@dataclass(frozen=True, slots=True)
class Waits:
    """What a task waits for. `children`: of those that it gathers, so many live, of `total`, and `need` must succeed.

    `dependencies`: haven't succeeded; `failed` of them won't, unless somebody sends them again.
    """

    children: int
    total: int | None
    need: int | None
    dependencies: int
    failed: int


@dataclass(frozen=True, slots=True)
class Child:
    """A child in a list. `began_at`: its first start."""

    public_id: uuid.UUID
    name: str
    state: str
    began_at: datetime | None
    finished_at: datetime | None


def shown(connection: Connection, parent: int, *, looked: int, most: int) -> list[Child]:
    """Return some children of a task, of the first `looked`: those first that may need somebody, then by birth."""
    parameters = {"parent": parent, "looked": looked, "most": most}
    return [Child(*row) for row in connection.execute(sql.load("children/shown"), parameters)]


def states(connection: Connection, parent: int, ranges: Ranges) -> list[State]:
    """Return how a task's children stand, in order; of numbers that aren't children of it, nothing."""
    cursor = connection.execute(sql.load("children/states"), {"parent": parent, **_columns(ranges)})
    return [State(row[0]) for row in cursor]


def results(connection: Connection, parent: int, ranges: Ranges) -> list[Result]:
    """Return what a task's children left, in order."""
    cursor = connection.execute(sql.load("children/results"), {"parent": parent, **_columns(ranges)})
    return [Result(*row) for row in cursor]


def cut_off(connection: Connection, parent: int, ranges: Ranges) -> list[Again]:
    """Return the children that were cancelled only because their parent had ended, to be sent again as they were."""
    cursor = connection.execute(sql.load("children/cut_off"), {"parent": parent, **_columns(ranges)})
    return [
        Again(task=task, version=version, pool=pool, signature=signature, start_by=None)
        for task, version, pool, signature in cursor
    ]


def wait(connection: Connection, task: int, release_no: int, *, need: int, total: int, ranges: Ranges) -> bool:
    """Note what a running task is about to wait for, parked. False: it is no longer this release's."""
    parameters = {"task": task, "release_no": release_no, "need": need, "total": total, **_columns(ranges)}
    return connection.execute(sql.load("children/wait"), parameters).fetchone() is not None


def family(connection: Connection, task: int, run: int) -> tuple[int | None, int]:
    """Return in which run a task's children are (None: in none yet), and how many were spawned in it."""
    row = connection.execute(sql.load("children/family"), {"parent": task, "run": run}).fetchone()
    assert row is not None
    return row[0], row[1]


def link(connection: Connection, task: int, release_no: int) -> None:
    """Say of a running task that it has children."""
    connection.execute(sql.load("children/link"), {"task": task, "release_no": release_no})


def depend(connection: Connection, edges: Sequence[tuple[int, int]], *, tenant: int) -> None:
    """Note of tasks just submitted on which others of their run they depend: (task, on) each."""
    parameters = {"tenant": tenant, "tasks": [task for task, _ in edges], "ons": [on for _, on in edges]}
    connection.execute(sql.load("children/depend"), parameters)


def ended_above(connection: Connection, *, after: int = 0, most: int) -> list[EndedAbove]:
    """Return tasks after whose end others may have to be cancelled, oldest notice first, from a notice on."""
    return [
        EndedAbove(*row)
        for row in connection.execute(sql.load("children/ended_above"), {"after": after, "limit": most})
    ]


def orphans(connection: Connection, parent: int, *, most: int) -> list[int]:
    """Return live children of a task that weren't asked to stop."""
    cursor = connection.execute(sql.load("children/orphans"), {"parent": parent, "limit": most})
    return [row[0] for row in cursor]


def failed(connection: Connection, task: int) -> tuple[uuid.UUID, str, str | None] | None:
    """Return the first that a task depends on and that won't succeed: public id, state, message."""
    row = connection.execute(sql.load("children/failed"), {"task": task}).fetchone()
    return (row[0], row[1], row[2]) if row else None


def tell(connection: Connection, tasks: Sequence[int], *, error_class: str, message: str) -> None:
    """Note why tasks were cancelled, where the API shows it."""
    connection.execute(sql.load("children/told"), {"tasks": list(tasks), "class": error_class, "message": message})


def forget(connection: Connection, task: int, *, last: int) -> None:
    """Drop the notices of a task up to one: what they told of is done."""
    connection.execute("DELETE FROM notice WHERE task_id = %s AND down AND id <= %s", (task, last))


def waits(connection: Connection, task: int) -> Waits:
    """Return what a task waits for of others."""
    row = connection.execute(sql.load("children/waits"), {"task": task}).fetchone()
    assert row is not None
    return Waits(*row)


def _columns(ranges: Ranges) -> dict[str, list[int]]:
    return {"firsts": [first for first, _ in ranges], "counts": [n for _, n in ranges]}
