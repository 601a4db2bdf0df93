"""Approve, deny, ask again: each on a task's last question, with author and note in the trace and on the question.

Each opens a transaction of its own: call it outside one. `tenant` None: an operator, on whosever task; else the tenant
that acts, on its own tasks. A question is answered once; whoever comes second gets a Conflict that says who was first.
"""

import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import psycopg

from harness.engine.why import said_at
from harness.policy import approvals as policy
from harness.policy.approvals import Do, No, Standing
from harness.policy.errors import Conflict, NotFound, Unavailable
from harness.policy.holds import APPROVAL_TIMEOUT
from harness.policy.lifecycle import State
from harness.store import queries, transitions
from harness.store.approvals import Approval
from harness.store.database import LOCKED, Connection
from harness.store.doorbell import Doorbell

_bell = Doorbell()


@dataclass(frozen=True, kw_only=True, slots=True)
class Answered:
    """What a verb did: `approved`, `answered` (a no that the kind wanted to hear), `denied` (it ended) or `reasked`.

    `choice`: what the kind gets.
    """

    outcome: str
    choice: str | None = None


def approve(
    connection: Connection,
    task: uuid.UUID,
    *,
    choice: str | None = None,
    tenant: int | None,
    actor: str,
    reason: str = "",
    only: tuple[int, int] | None = None,
) -> Answered:
    """Say yes to what a task asks, with one of its choices (without one: the only one there is).

    `only`: the question (number) and the asking of it (asks) that are meant. Raises: Invalid (choice, reason);
    NotFound; Conflict (decided already, or it doesn't wait); Unavailable.
    """
    found = _do(
        connection, task, partial(policy.approve, choice=choice), "approve",
        tenant=tenant, actor=actor, reason=reason, only=only,
    )  # fmt: skip
    return Answered(outcome="approved", choice=found.choice)


def deny(
    connection: Connection,
    task: uuid.UUID,
    *,
    tenant: int | None,
    actor: str,
    reason: str = "",
    only: tuple[int, int] | None = None,
) -> Answered:
    """Say no to what a task asks: it is cancelled, or gets the answer, as its kind says. Raises: as `approve`."""
    found = _do(connection, task, policy.deny, "deny", tenant=tenant, actor=actor, reason=reason, only=only)
    return Answered(outcome="denied" if found.choice is None else "answered", choice=found.choice)


def reask(connection: Connection, task: uuid.UUID, *, tenant: int | None, actor: str, reason: str = "") -> Answered:
    """Ask again what nobody decided in time; its clock begins anew. Raises: as `approve`."""
    _do(connection, task, policy.reask, "reask", tenant=tenant, actor=actor, reason=reason, only=None)
    return Answered(outcome="reasked")


def offered(state: str, holds: Sequence[str], *, decided: bool) -> tuple[str, ...]:
    """Return the verbs that would do something to what a task asks. `decided`: it is ready, or released.

    >>> offered("waiting_approval", (), decided=False), offered("paused", ["approval_timeout"], decided=False)
    (('approve', 'deny'), ('reask',))
    """
    if state == State.WAITING_APPROVAL and not decided:
        return ("approve", "deny")
    return ("reask",) if list(holds) == [APPROVAL_TIMEOUT] else ()


def told(approval: Approval, now: datetime | None = None) -> str:
    """Return who decided what, and when, in words."""
    at = approval.decided_at or datetime.now(UTC)
    when = said_at(at.timestamp(), datetime.now(UTC) if now is None else now)
    what = "denied" if approval.verdict == "deny" else "approved"
    chosen = f" ({approval.choice})" if approval.verdict == "approve" and len(approval.choices) > 1 else ""
    return f"{what}{chosen} by {approval.decided_by} at {when}" + (f": “{approval.note}”" if approval.note else "")


def held(connection: Connection, tenant: int | None) -> AbstractContextManager[None]:
    """Hold the connection to the tenant that acts, if one does."""
    return nullcontext() if tenant is None else queries.held_to_tenant(connection, tenant)


def _do(
    connection: Connection,
    task: uuid.UUID,
    rule: Callable[[Standing], Do | No],
    verdict: str,
    *,
    tenant: int | None,
    actor: str,
    reason: str,
    only: tuple[int, int] | None,
) -> Do:
    note = policy.check_note(reason)
    with held(connection, tenant):
        found = queries.the_task(connection, task)
        by = transitions.By(actor=actor, reason=note)
        try:
            decided = transitions.decide(connection, found.id, rule, verdict=verdict, by=by, told=told, only=only)
        except psycopg.errors.LockNotAvailable as error:
            raise Unavailable(LOCKED) from error
    if decided is None:
        raise NotFound(f"there is no task {task}")
    if isinstance(decided.done, No):
        facts: dict[str, Any] = {"task_id": str(task), "state": decided.state}
        if decided.done.decided and (was := decided.approval) is not None and was.decided_at is not None:
            facts |= {
                "decided_by": was.decided_by,
                "decided_at": was.decided_at.astimezone(UTC).isoformat(),
                "verdict": was.verdict,
                "choice": was.choice,
            }
        raise Conflict(f"the task {decided.done.why.removeprefix('it ')}", **facts)
    _bell.ring(connection)
    return decided.done
