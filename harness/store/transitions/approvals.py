"""What people and time do to a task that waits for a decision: answer, deny, ask again, run out.

An undecided task is on no lease, so its own lock is enough; the question is read after it, and changed under both.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass

from harness.policy.approvals import Act, Do, No, OnDeny, Standing
from harness.policy.lifecycle import State
from harness.store import approvals, sql
from harness.store.approvals import Approval
from harness.store.database import Connection
from harness.store.transitions.people import By


@dataclass(frozen=True, slots=True)
class Decided:
    """What became of a verb on a question: it was done, or why not. `approval`: the question as it stood before."""

    done: Do | No
    approval: Approval | None
    state: State


def decide(
    connection: Connection,
    task: int,
    rule: Callable[[Standing], Do | No],
    *,
    verdict: str,
    by: By,
    told: Callable[[Approval], str],
    only: tuple[int, int] | None = None,
) -> Decided | None:
    """Do a verb to a task's last question, in one transaction. Returns None when the task is gone.

    `rule`: policy.approvals; `verdict` approve or deny, of an answer; `told` says who decided and when; `only`: the
    question and the asking (number, asks) that is meant, no later one. Raises: Invalid (of the rule).
    """
    with connection.transaction():
        row = connection.execute(sql.load("transitions/lock_tasks"), {"tasks": [task]}).fetchone()
        if row is None:
            return None
        _, state, _, holds, *_ = row
        asked = approvals.last(connection, task)
        stand = _standing(State(state), tuple(holds), asked, told)
        if only is not None and (stand.number, stand.asks) != only:
            return Decided(No("it asks something else now, or anew: take the link of that"), asked, State(state))
        done = rule(stand)
        if isinstance(done, Do):
            assert asked is not None
            _carry_out(connection, asked, done, verdict, by)
        return Decided(done, asked, State(state))


def time_out(connection: Connection, *, actor: str, limit: int = 500) -> int:
    """Pause or cancel tasks whose question nobody answered in time. Returns how many."""
    cursor = connection.execute(sql.load("transitions/approval_timeout"), {"limit": limit, "actor": actor})
    return len(cursor.fetchall())


def _standing(
    state: State, holds: tuple[str, ...], asked: Approval | None, told: Callable[[Approval], str]
) -> Standing:
    if asked is None:
        return Standing(state=state, holds=holds)
    deny: OnDeny = "answer" if asked.deny == "answer" else "cancel"
    return Standing(
        state=state,
        holds=holds,
        number=asked.id,
        asks=asked.asks,
        open=asked.open,
        choices=tuple(asked.choices),
        deny=deny,
        verdict=asked.verdict,
        decided=told(asked) if asked.verdict is not None else "",
    )


def _carry_out(connection: Connection, asked: Approval, done: Do, verdict: str, by: By) -> None:
    facts: dict[str, object] = {"ordinal": asked.ordinal}
    if done.choice is not None:
        facts["choice"] = done.choice
    if by.reason:
        facts["reason"] = by.reason
    message = f"denied by {by.actor}" + (f": {by.reason}" if by.reason else "")
    cursor = connection.execute(
        sql.load(f"transitions/{done.act}"),
        {
            "approval": asked.id,
            "verdict": verdict,
            "choice": done.choice,
            "note": by.reason,
            "actor": by.actor,
            "error": json.dumps({"class": "denied", "message": message}) if done.act is Act.DENY else None,
            "data": json.dumps(facts),
        },
    )
    assert cursor.rowcount == 1, f"{done.act} did {cursor.rowcount} tasks under the lock of one"
