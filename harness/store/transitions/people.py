"""What people do to tasks: each verb under the locks of lease, then task; an unclaimed task leaves its lease.

One dance of locks serves all verbs and any number of tasks: lock the leases that the tasks are on, lock the tasks, look
again at the leases. A task that got onto another lease in between is left out and comes with the next round. What is
done to each is the policy's decision about how it stands under its lock (policy.verbs).

Who acts on many doesn't wait for a task that somebody has locked: it is answered BUSY, and the others go on.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.policy import verbs
from harness.policy.lifecycle import State
from harness.policy.verbs import Asked, Decide, Decision, Stand, Step
from harness.store import sql
from harness.store.database import Connection

TRIES = 5  # a task may be released or claimed between the look and the lock; each such round is real progress
MOVED = verbs.refused("it keeps changing hands; try again")
BUSY = verbs.refused("someone else has it locked; try again")


@dataclass(frozen=True, kw_only=True, slots=True)
class By:
    """Who acts, and why: both stay in the trace."""

    actor: str
    reason: str = ""


def act(
    connection: Connection,
    tasks: Sequence[int],
    decide: Decide,
    asked: Asked,
    by: By,
    *,
    more: Mapping[str, Any] | None = None,
    pass_over: bool = False,
) -> dict[int, Decision]:
    """Do a verb to tasks in one transaction (a few, when tasks change hands meanwhile). Returns the decision on each.

    A task that is gone is missing from it. `more`: what the verb's statement takes beyond the usual. `pass_over`: wait
    for no lock; what somebody has locked is BUSY. Outside a transaction; hold no more than some hundred tasks at once.
    """
    answers: dict[int, Decision] = {}
    left = sorted(set(tasks))
    for _ in range(TRIES):
        if not left:
            break
        with connection.transaction():
            stands, left, busy = _lock(connection, left, pass_over=pass_over)
            decided = {task: decide(stand, asked) for task, stand in stands.items()}
            _carry_out(connection, decided, asked, by, more or {})
        answers |= decided | dict.fromkeys(busy, BUSY)
    return answers | dict.fromkeys(left, MOVED)


def cancel(connection: Connection, task: int, *, actor: str, reason: str = "") -> str:
    """Cancel one task. Returns `cancelled`, `wished` (it runs), `already`, or `refused` (it has ended, or is gone)."""
    done = act(connection, [task], verbs.cancel, Asked(), By(actor=actor, reason=reason)).get(task)
    return "refused" if done is None else done.outcome


def lock_free(connection: Connection, tasks: Sequence[int]) -> set[int]:
    """Lock those tasks that nobody has locked, in the caller's transaction; for tasks that are on no lease."""
    return {row[0] for row in connection.execute(sql.load("transitions/lock_free_tasks"), {"tasks": list(tasks)})}


def _lock(
    connection: Connection, tasks: Sequence[int], *, pass_over: bool
) -> tuple[dict[int, Stand], list[int], list[int]]:
    """Lock leases, then tasks. Returns how each task stands, those that got onto another lease in between, the busy."""
    which = "free_" if pass_over else ""
    given = {"tasks": list(tasks)}
    locked = {row[0] for row in connection.execute(sql.load(f"transitions/lock_{which}leases_of"), given)}
    rows = connection.execute(sql.load(f"transitions/lock_{which}tasks"), given).fetchall()
    busy: list[int] = []
    if pass_over and len(rows) < len(tasks):
        there = {row[0] for row in connection.execute("SELECT id FROM task WHERE id = ANY(%(tasks)s)", given)}
        busy = sorted(there - {row[0] for row in rows})
    leases: dict[int, int] = dict(
        connection.execute(sql.load("transitions/leases_of"), {"tasks": [row[0] for row in rows]}).fetchall()
    )
    stands: dict[int, Stand] = {}
    moved: list[int] = []
    for task, state, want, holds, priority, waits in rows:
        if task in leases and leases[task] not in locked:
            (busy if pass_over else moved).append(task)
            continue
        stands[task] = Stand(
            state=State(state),
            want=want,
            holds=tuple(holds),
            leased=task in leases,
            waits=waits,
            priority=priority,
        )
    return stands, moved, busy


def _carry_out(
    connection: Connection, decided: Mapping[int, Decision], asked: Asked, by: By, more: Mapping[str, Any]
) -> None:
    groups: dict[tuple[Step, str | None], list[int]] = {}
    for task, decision in decided.items():
        if decision.step is not None:
            groups.setdefault((decision.step, decision.want), []).append(task)
    for (step, want), tasks in groups.items():
        cursor = connection.execute(
            sql.load(f"transitions/{step}"),
            {
                "tasks": tasks,
                "actor": by.actor,
                "reason": by.reason,
                "hold": asked.hold,
                "priority": asked.priority,
                "want": want,
                "data": _data(step, want, asked, by),
                **more,
            },
        )
        assert cursor.rowcount == len(tasks), f"{step} did {cursor.rowcount} of {len(tasks)} locked tasks"


def _data(step: Step, want: str | None, asked: Asked, by: By) -> str | None:
    """What the trace keeps beside the event: why, and whose hold or wish it is."""
    facts: dict[str, object] = {}
    match step:
        case Step.WISH:
            facts["want"] = want
            if want != "cancel":
                facts["hold"] = asked.hold
        case Step.PAUSE | Step.RESUME:
            facts["hold"] = asked.hold
        case _:
            pass
    if by.reason:
        facts["reason"] = by.reason
    return json.dumps(facts) if facts else None
