"""What people do to tasks, each verb under the locks of lease, then task; an unclaimed task leaves its lease."""

import json
from collections.abc import Sequence
from typing import Literal

from harness.policy.errors import Conflict
from harness.policy.lifecycle import TABLE, Event
from harness.store import sql
from harness.store.database import Connection

CANCEL_TRIES = 5  # a task may be released or claimed between the look and the lock; each such round is real progress


def cancel(
    connection: Connection, task: int, *, actor: str, reason: str = ""
) -> Literal["cancelled", "wished", "already", "finished"]:
    """Cancel a task, or note the wish when it runs.

    `already`: the same wish stands, or it is cancelled; `finished`: it is too late.
    Raises: Conflict when the task changed hands in every try.
    """
    data = json.dumps({"reason": reason} if reason else {"want": "cancel"})
    for _ in range(CANCEL_TRIES):
        with connection.transaction():
            leased = connection.execute(sql.load("transitions/lock_lease_of"), {"task": task}).fetchone()
            row = connection.execute(sql.load("transitions/lock_task"), {"task": task}).fetchone()
            if row is None:
                return "finished"
            state, want = row
            lease = connection.execute(sql.load("transitions/lease_of"), {"task": task}).fetchone()
            if (leased and leased[0]) != (lease and lease[0]):
                continue  # released, or taken back, between the two locks: look again in their order
            if state == "cancelled" or (state == "running" and want == "cancel"):
                return "already"
            if state == "running":
                connection.execute(
                    sql.load("transitions/wish"), {"task": task, "want": "cancel", "actor": actor, "data": data}
                )
                return "wished"
            sources = [str(source) for source in TABLE[Event.CANCEL].sources]
            done = connection.execute(
                sql.load("transitions/cancel"), {"task": task, "sources": sources, "actor": actor, "data": data}
            ).fetchone()
            return "cancelled" if done else "finished"
    raise Conflict("the task keeps changing hands; try again")


def reprioritise(
    connection: Connection, tasks: Sequence[int], priority: int, *, actor: str, reason: str = ""
) -> list[int]:
    """Give queued tasks without a lease another priority. Returns those changed; the others are left as they are."""
    with connection.transaction():
        locked = [row[0] for row in connection.execute(sql.load("transitions/lock_queued"), {"tasks": list(tasks)})]
        if not locked:
            return []
        changed = connection.execute(
            sql.load("transitions/reprioritise"),
            {"tasks": locked, "priority": priority, "actor": actor, "reason": reason},
        )
        return [row[0] for row in changed]
