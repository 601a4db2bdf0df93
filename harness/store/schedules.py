"""Rows of schedules: made, changed and removed by people; taken and moved on by the sweep that fires them.

A moment fires once because `move_on` compares the row's next_at with what was seen, in the transaction that inserts the
tasks: whoever comes second finds no row, and its tasks go with its transaction.
"""

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

from harness.policy.admission import TenantFacts
from harness.policy.errors import Conflict
from harness.policy.schedule import CatchUp
from harness.store import sql
from harness.store.database import Connection

PER_TENANT = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Content:
    """What a person says of a schedule, checked. `input` is JSON text."""

    name: str
    kind: str
    input: str
    priority: int | None
    ttl_s: float | None
    title: str
    tags: Sequence[str]
    cron: str
    zone: str
    catch_up: CatchUp


@dataclass(frozen=True, slots=True)
class ScheduleView:
    """A schedule as people see it."""

    id: int
    public_id: uuid.UUID
    tenant: str
    name: str
    kind: str
    input: Any
    priority: int | None
    ttl_s: float | None
    title: str
    tags: list[str]
    cron: str
    zone: str
    catch_up: CatchUp
    enabled: bool
    stopped_because: str | None
    next_at: datetime | None
    last_fired_at: datetime | None
    last_task: uuid.UUID | None
    fired: int
    author: str
    created_at: datetime
    changed_at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class DueSchedule:
    """A schedule whose time has come, locked in the caller's transaction. `now`: the database's clock."""

    id: int
    public_id: uuid.UUID
    name: str
    kind: str
    input: Any
    priority: int | None
    ttl_s: float | None
    title: str
    tags: list[str]
    cron: str
    zone: str
    catch_up: CatchUp
    next_at: datetime
    now: datetime
    tenant: TenantFacts


def take_due(connection: Connection, *, now: datetime | None = None, apart: Sequence[int] = ()) -> DueSchedule | None:
    """Lock and return one due schedule that nobody else holds, leaving out those `apart`. In a transaction."""
    row = connection.execute(sql.load("schedules/take_due"), {"now": now, "apart": list(apart)}).fetchone()
    if row is None:
        return None
    own, tenant = row[:14], row[14:]
    facts = TenantFacts(id=tenant[0], name=tenant[1], top_priority=tenant[2], backlog_quota=tenant[3])
    return DueSchedule(**dict(zip(DueSchedule.__slots__, (*own, facts), strict=True)))


def move_on(
    connection: Connection,
    due: DueSchedule,
    *,
    next_at: datetime | None,
    look_at: datetime | None,
    fired: int = 0,
    task: uuid.UUID | None = None,
    stopped_because: str | None = None,
    enabled: bool = True,
) -> bool:
    """Move a taken schedule on from the moment it was seen at. False: someone else did; undo what was done for it."""
    row = connection.execute(
        sql.load("schedules/move_on"),
        {
            "schedule": due.id,
            "seen": due.next_at,
            "next_at": next_at,
            "look_at": look_at,
            "fired": fired,
            "task": task,
            "stopped_because": stopped_because,
            "enabled": enabled and next_at is not None,
            "now": due.now,
        },
    ).fetchone()
    return row is not None


def insert(
    connection: Connection, content: Content, *, tenant: int, next_at: datetime, enabled: bool, author: str
) -> uuid.UUID | None:
    """Insert a schedule. Returns its public id; None when the tenant has PER_TENANT. Raises: Conflict (name)."""
    with _name_is_free(content.name):
        row = connection.execute(
            sql.load("schedules/insert"),
            _columns(content)
            | {"tenant": tenant, "next_at": next_at, "enabled": enabled, "author": author, "most": PER_TENANT},
        ).fetchone()
    return row[0] if row else None


def update(
    connection: Connection,
    schedule: uuid.UUID,
    content: Content,
    *,
    next_at: datetime | None,
    enabled: bool,
    stopped_because: str | None,
) -> None:
    """Write a schedule that `one` has locked. Raises: Conflict (name)."""
    with _name_is_free(content.name):
        connection.execute(
            sql.load("schedules/update"),
            _columns(content)
            | {"schedule": schedule, "next_at": next_at, "enabled": enabled, "stopped_because": stopped_because},
        )


def one(connection: Connection, schedule: uuid.UUID, *, lock: bool = False) -> ScheduleView | None:
    """Return a schedule; with `lock` it stays as it is until the caller's transaction ends."""
    statement = sql.load("schedules/one")
    row = connection.execute(f"{statement}FOR UPDATE OF s" if lock else statement, {"schedule": schedule}).fetchone()
    return ScheduleView(*row) if row else None


def page(connection: Connection, *, tenant: int | None, after: int = 0, most: int) -> list[ScheduleView]:
    """Return schedules by id, after one; `tenant` None: of all (operators)."""
    cursor = connection.execute(sql.load("schedules/page"), {"tenant": tenant, "after": after, "most": most})
    return [ScheduleView(*row) for row in cursor]


def stop(connection: Connection, schedule: uuid.UUID, why: str) -> bool:
    """Stop a schedule that isn't stopped. False: there is no such schedule, or it is stopped already."""
    cursor = connection.execute(
        "UPDATE schedule SET enabled = false, stopped_because = %s, changed_at = clock_timestamp() "
        "WHERE public_id = %s AND enabled",
        (why, schedule),
    )
    return cursor.rowcount == 1


def delete(connection: Connection, schedule: uuid.UUID) -> bool:
    """Remove a schedule. Its tasks stay, and still name it."""
    return connection.execute("DELETE FROM schedule WHERE public_id = %s", (schedule,)).rowcount == 1


def _columns(content: Content) -> dict[str, Any]:
    return {name: getattr(content, name) for name in Content.__slots__} | {"tags": list(content.tags)}


@contextmanager
def _name_is_free(name: str) -> Iterator[None]:
    try:
        yield
    except psycopg.errors.UniqueViolation:
        raise Conflict(f"name: there is a schedule {name!r} already", field="name") from None
