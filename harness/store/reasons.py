"""Why flows wait: what the leading dispatcher notes, and what readers are told of it.

Only changes are written, some thousand rows at once, each statement under the leader's epoch. Under role `web` a reader
sees the notes on its own tenant's flows.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.policy import steps
from harness.policy.binding import Flow, FlowKey, PauseFacts
from harness.policy.reasons import Code, Reason
from harness.policy.waits import Note
from harness.store import sql
from harness.store.database import Connection


@dataclass(frozen=True, slots=True)
class PoolStands:
    """A pool's places of live workers, the free ones, and how many tenants have work waiting for it."""

    pool: str
    slots: int
    free: int
    tenants: int


@dataclass(frozen=True, slots=True)
class InLine:
    """What binds a task's flow at `now_s`. `leaderless_s`: since when none leads (0: unknown; None: one does).

    `reason`, `since_s`: the open note on its flow, if there is one. `ahead`: tasks of its flow before it, up to one
    more than was asked for. Places of the pool and of quarantine: None before they were first noted.
    """

    now_s: float
    leaderless_s: float | None
    reason: Reason | None
    since_s: float | None
    slots: int | None
    free: int | None
    tenants: int | None
    quarantine_slots: int | None
    quarantine_free: int | None
    ahead: int
    lost_starts: int


@dataclass(frozen=True, slots=True)
class EventTold:
    """A trace event, with its moment in epoch seconds."""

    at_s: float
    event: str
    to_state: str
    actor: str
    data: Any


def flows(connection: Connection, *, after: int, most: int) -> tuple[list[Flow], int | None]:
    """Return a window of the flows, by id, and where the next one begins (None: this was the last)."""
    rows = connection.execute(sql.load("reasons/flows"), {"after": after, "most": most}).fetchall()
    found = [Flow(row[0], row[1:6], row[6], row[7]) for row in rows]
    return found, max(row[0] for row in rows) if len(rows) == most else None


def pauses(connection: Connection) -> list[PauseFacts]:
    """Return the pauses in force."""
    return [
        PauseFacts(
            scope=row[0], key=row[1], source=row[2], author=row[3], reason=row[4], since_s=row[5], until_s=row[6]
        )
        for row in connection.execute(sql.load("reasons/pauses"))
    ]


def noted(connection: Connection) -> dict[FlowKey, Reason]:
    """Return the reasons that are noted as binding now."""
    cursor = connection.execute(sql.load("reasons/open"))
    return {(row[0], row[1], row[2], row[3], row[4]): Reason(Code(row[5]), row[6], row[7]) for row in cursor}


def note(connection: Connection, changes: Sequence[tuple[FlowKey, Reason | None]], *, epoch: int) -> tuple[int, int]:
    """Note what binds these flows from now on; None: the flow is gone. Returns how many rows ended and began."""
    rows = [
        {
            "pool": key[0],
            "priority": key[1],
            "tenant": key[2],
            "run": key[3],
            "signature": key[4],
            "code": None if reason is None else reason.code,
            "subject": None if reason is None else reason.subject,
            "facts": None if reason is None else reason.facts or {},
        }
        for key, reason in sorted(changes, key=lambda one: one[0])
    ]
    found = connection.execute(sql.load("reasons/note"), {"epoch": epoch, "changes": json.dumps(rows)}).fetchone()
    return (found[0], found[1]) if found else (0, 0)


def note_pools(connection: Connection, pools: Sequence[PoolStands], *, epoch: int) -> int:
    """Note how pools stand. Returns how many it wasn't noted of already."""
    row = connection.execute(
        sql.load("reasons/pools"),
        {
            "epoch": epoch,
            "pools": [one.pool for one in pools],
            "slots": [one.slots for one in pools],
            "free": [one.free for one in pools],
            "tenants": [one.tenants for one in pools],
        },
    ).fetchone()
    return row[0] if row else 0


def in_line(connection: Connection, task: int, *, most: int) -> InLine | None:
    """Return what binds a task's flow; None: it is gone. `most`: so many tasks before it are counted, and one."""
    row = connection.execute(sql.load("reasons/of_task"), {"task": task, "most": most}).fetchone()
    if row is None:
        return None
    now_s, leaderless_s, code, subject, facts, *rest = row
    return InLine(now_s, leaderless_s, None if code is None else Reason(Code(code), subject, facts), *rest)


def last_events(connection: Connection, task: int, *, most: int) -> list[EventTold]:
    """Return a task's newest events, in order; those of its steps left out."""
    rows = connection.execute(
        sql.load("reasons/last_events"), {"task": task, "without": sorted(steps.EVENTS), "most": most}
    ).fetchall()
    return [EventTold(*row) for row in reversed(rows)]


def notes_at(connection: Connection, task: int, moments: Iterable[tuple[int, float]]) -> list[Note | None]:
    """Return the note on the task's flow for each (priority, epoch seconds), in that order."""
    asked = list(moments)
    parameters: Mapping[str, object] = {
        "task": task,
        "priorities": [priority for priority, _ in asked],
        "moments": [at_s for _, at_s in asked],
    }
    rows = connection.execute(sql.load("reasons/notes_at"), parameters).fetchall()
    return [None if row[0] is None else Note(key=row[0], since_s=row[1], until_s=row[2], before=row[3]) for row in rows]
