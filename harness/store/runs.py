"""What the pages of runs, of parents and of a tenant show beside single tasks. Reads only; each of them is bounded.

How many tasks stand how is one string: a letter a task, in order of birth (LETTERS). 10,000 of them are 10 kB, and all
counts follow from it, so a picture and its figures never disagree. Under role `web` the rows are one tenant's.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from harness.policy.lifecycle import State
from harness.policy.reasons import Code, Reason
from harness.store import sql
from harness.store.database import Connection

LETTERS = {
    "q": State.QUEUED,
    "r": State.RUNNING,
    "w": State.WAITING_APPROVAL,
    "k": State.PAUSED,  # PARKED
    "p": State.PAUSED,
    "t": State.FAILED_RETRYABLE,
    "s": State.SUCCEEDED,
    "f": State.FAILED_TERMINAL,
    "c": State.CANCELLED,
}
PARKED = "k"  # it waits for its children, and for nothing else: people don't call that paused
MEMBERS_MOST = 50_000  # of one run or parent that are looked at
FAILED_MOST = 2_000  # failures that are grouped: each costs a look at its error
LIVE_MOST = 2_000  # live tasks of a tenant that are counted
NEWEST_MOST = 5_000  # of a tenant's tasks that are asked what became of them
COUNTED_MOST = 500  # tasks of each run in a list of runs
REASONS_MOST = 200  # lines whose reasons are looked at
TENANTS_MOST = 500  # that are listed


@dataclass(frozen=True, slots=True)
class Slow:
    """A task of a run that took long, from its first start to its end (None: it goes on). `parked`: for children."""

    public_id: uuid.UUID
    kind: str
    title: str | None
    state: State
    parked: bool
    began_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class Cause:
    """Failures alike: the class, the first one's message, how many, and the first tasks. Or cancelled with others."""

    state: State
    error_class: str
    message: str
    n: int
    tasks: list[uuid.UUID]


@dataclass(frozen=True, slots=True)
class Node:
    """A task of a run, with the tasks (ids) that it waits for. `began_at`: its first start; `parked`: for children."""

    id: int
    public_id: uuid.UUID
    kind: str
    title: str | None
    state: State
    parked: bool
    parent: int | None
    depends_on: list[int]
    began_at: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class RunLine:
    """A run in a list. Of its first COUNTED_MOST tasks `looked` are there, and so many have ended, or failed."""

    public_id: uuid.UUID
    name: str
    size: int
    created_at: datetime
    looked: int
    ended: int
    failed: int


@dataclass(frozen=True, slots=True)
class Now:
    """A tenant's work. `running`: on workers; `live`: by state; `ended`: in the last day, of the newest tasks.

    `more`: there are more live tasks than were counted, so all of `live` are lower bounds. `newest`: the newest tasks
    are all of the last day, so older ones may have ended in it, too.
    """

    running: int
    live: dict[State, int]
    ended: dict[State, int]
    more: bool
    newest: bool = False


def states(connection: Connection, run: int) -> tuple[str, datetime | None]:
    """Return how a run's tasks stand, a letter each in order of birth, and when the last one ended so far.

    Spawned tasks are among them.
    """
    row = connection.execute(sql.load("runs/states"), {"run": run, "most": MEMBERS_MOST}).fetchone()
    assert row is not None
    return row[0], row[1]


def states_of_children(connection: Connection, parent: int) -> str:
    """Return how a task's children stand: a letter each, in order of birth."""
    row = connection.execute(sql.load("runs/states_of_parent"), {"parent": parent, "most": MEMBERS_MOST}).fetchone()
    return str(row[0]) if row else ""


def slowest(connection: Connection, run: int, *, most: int) -> list[Slow]:
    """Return the tasks of a run that took longest, or have so far."""
    cursor = connection.execute(sql.load("runs/slowest"), {"run": run, "looked": MEMBERS_MOST, "most": most})
    return [
        Slow(task, kind, title, State(state), parked, began_at, ended_at)
        for task, kind, title, state, parked, began_at, ended_at in cursor
    ]


def failures(connection: Connection, run: int, *, most: int, shown: int) -> list[Cause]:
    """Return why tasks of a run failed, or were cancelled because of others: the most frequent cause first.

    Failures come before what was cancelled; with each cause come the ids of `shown` tasks.
    """
    parameters = {"run": run, "looked": MEMBERS_MOST, "failed": FAILED_MOST, "most": most, "shown": shown}
    return [
        Cause(State(state), error_class, message, n, tasks)
        for state, error_class, message, n, tasks in connection.execute(sql.load("runs/failures"), parameters)
    ]


def graph(connection: Connection, run: int, *, most: int) -> Sequence[Node] | None:
    """Return a run's tasks with what they wait for; None: there are more than `most`."""
    rows = connection.execute(sql.load("runs/graph"), {"run": run, "most": most + 1}).fetchall()
    if len(rows) > most:
        return None
    return [
        Node(row, public_id, kind, title, State(state), parked, parent, depends_on, began_at, ended_at)
        for row, public_id, kind, title, state, parked, parent, depends_on, began_at, ended_at in rows
    ]


def reasons(connection: Connection, tenant: int, run: int | None = None) -> list[tuple[Reason, datetime]]:
    """Return what holds the ready tasks of a run, or (None) of a tenant, and since when: what binds first, first."""
    parameters = {"tenant": tenant, "run": run, "most": REASONS_MOST}
    rows = connection.execute(sql.load(f"runs/reasons_of_{'tenant' if run is None else 'run'}"), parameters)
    found = [(Reason(Code(code), subject, facts), since) for code, subject, facts, since in rows]
    return sorted(found, key=lambda one: (one[0].rank, one[1]))


def recent(connection: Connection, tenant: int, *, most: int) -> list[RunLine]:
    """Return a tenant's newest runs."""
    parameters = {"tenant": tenant, "most": most, "counted": COUNTED_MOST}
    # Planned for this tenant each time, as queries.tasks is.
    return [RunLine(*row) for row in connection.execute(sql.load("runs/recent"), parameters, prepare=False)]


def now(connection: Connection, tenant: int) -> Now:
    """Return how a tenant's work stands."""
    parameters = {"tenant": tenant, "live": LIVE_MOST + 1, "newest": NEWEST_MOST}
    row = connection.execute(sql.load("runs/tenant_now"), parameters, prepare=False).fetchone()
    assert row is not None
    live, ended = ({State(state): n for state, n in found.items()} for found in row[1:3])
    return Now(running=row[0], live=live, ended=ended, more=sum(live.values()) > LIVE_MOST, newest=row[3])


def tenants(connection: Connection) -> list[str]:
    """Return the names of the tenants that the connection sees, in order."""
    return [row[0] for row in connection.execute("SELECT name FROM tenant ORDER BY name LIMIT %s", (TENANTS_MOST,))]
