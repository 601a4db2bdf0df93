"""The engine at a glance, for the operations page: what waits, what runs where, who was refused, what people did.

Each look is bounded whatever the number of tasks: waiting ones are counted by flow and as far as TASKS_MOST.
What else the page shows is read where it is kept (store.pressure, resources, autoscale, evaluations, pauses).
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.store import sql
from harness.store.database import Connection
from harness.store.sessions import DEAD_AFTER_S

FLOWS_MOST = 1_000
TASKS_MOST = 10_000  # waiting tasks that are counted: some 20 ms; of more it is said that there are at least so many
RETRIES_LOOKED = 1_000
ACTS_LOOKED = 500
ACTS = ("pause", "resume", "resource", "drain", "limits")


@dataclass(frozen=True, slots=True)
class Waiting:
    """Ready tasks without a slot, of one pool, priority and tenant. `age_s`: of the one that has waited longest."""

    pool: str
    priority: int
    tenant: int
    n: int
    age_s: float


@dataclass(frozen=True, slots=True)
class Session:
    """A worker process that lives. `pools`: its slots by pool; `held`: its leases. `since_s`: epoch seconds."""

    session: uuid.UUID
    host: str
    pid: int
    pools: Mapping[str, int]
    draining: bool
    held: int
    since_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Now:
    """What runs where. `in_use`, `zombies`: leases by pool. `leader`: who planned last; `leads`: and still does.

    `retries`: of the next RETRIES_LOOKED tasks that come back by themselves, those that failed before; `retry_in_s`:
    until the first of them.
    """

    sessions: Sequence[Session]
    in_use: Mapping[str, int]
    zombies: Mapping[str, int]
    leader: str | None
    leads: bool
    retries: int
    retry_in_s: float | None


@dataclass(frozen=True, slots=True)
class Refused:
    """What doors refused and put off of a tenant's tasks lately."""

    tenant: int
    name: str
    refused: int
    deferred: int


@dataclass(frozen=True, slots=True)
class Act:
    """What a person did. `at_s`: epoch seconds."""

    at_s: float
    actor: str
    verb: str
    subject: str
    reason: str
    data: Mapping[str, Any]


def waiting(connection: Connection) -> list[Waiting]:
    """Return what waits, by pool, priority and tenant. TASKS_MOST or more in all: there may be more."""
    cursor = connection.execute(
        sql.load("operations/waiting"),
        {"flows": FLOWS_MOST, "tasks": TASKS_MOST, "own": []},
        prepare=False,  # planned each time: a plan from when there were few tasks may read them all
    )
    return [Waiting(*row) for row in cursor]


def now(connection: Connection) -> Now:
    """Return what runs where."""
    row = connection.execute(
        sql.load("operations/now"), {"dead_after_s": DEAD_AFTER_S, "most": RETRIES_LOOKED}
    ).fetchone()
    assert row is not None
    found = row[0]
    owner, leads = found["leader"] or (None, False)
    return Now(
        sessions=[Session(uuid.UUID(one[0]), *one[1:]) for one in found["sessions"]],
        in_use={pool: n for pool, n, _ in found["leases"]},
        zombies={pool: n for pool, _, n in found["leases"]},
        leader=owner,
        leads=leads,
        retries=found["retries"][0],
        retry_in_s=found["retries"][1],
    )


def refused(connection: Connection, *, minutes: int) -> list[Refused]:
    """Return what doors refused and put off in the last minutes, by tenant."""
    return [Refused(*row) for row in connection.execute(sql.load("operations/refused"), {"minutes": minutes})]


def acts(connection: Connection, *, most: int) -> list[Act]:
    """Return the newest acts that concern everyone's work, the newest first."""
    cursor = connection.execute(sql.load("operations/acts"), {"look": ACTS_LOOKED, "verbs": list(ACTS), "most": most})
    return [Act(*row) for row in cursor]


def names(connection: Connection, tenants: Sequence[int]) -> dict[int, tuple[str, float]]:
    """Return the names and weights of tenants by number."""
    cursor = connection.execute(
        "SELECT id, name, weight::double precision FROM tenant WHERE id = ANY(%s)", (list(tenants),)
    )
    return {row[0]: (row[1], row[2]) for row in cursor}
