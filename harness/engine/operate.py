"""People's verbs on a task. Admin, API and command line list them from VERBS; `offered` says which a task offers."""

import uuid
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Literal

from harness.policy.errors import Conflict, Invalid, NotFound
from harness.policy.lifecycle import TABLE, Event, State
from harness.store import queries, transitions
from harness.store.database import Connection

REASON_MAX_CHARS = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """What a verb did. `wished`: the task runs, and stops at its next checkpoint; `already`: nothing was left to do."""

    outcome: Literal["cancelled", "wished", "already"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Verb:
    """One verb: the event it fires, whether it also works on a running task as a wish, and the function."""

    event: Event
    wish: str | None
    help: str
    run: Callable[..., Done]


def cancel(connection: Connection, task: uuid.UUID, *, tenant: int | None, actor: str, reason: str = "") -> Done:
    """Cancel a task, at once or, when it runs, at its next checkpoint. `tenant` None: whosever it is (operators).

    Outside a transaction. Raises: NotFound; Conflict when it has ended; Invalid (reason).
    """
    if len(reason) > REASON_MAX_CHARS or not reason.isprintable():
        raise Invalid(f"reason: must be printable text of at most {REASON_MAX_CHARS} characters", field="reason")
    with nullcontext() if tenant is None else queries.held_to_tenant(connection, tenant):
        found = queries.task(connection, task)
        if found is None:
            raise NotFound(f"there is no task {task}")
        outcome = transitions.cancel(connection, found.id, actor=actor, reason=reason)
        if outcome == "finished":
            ended = queries.task(connection, task)
            raise Conflict(
                f"the task has ended ({ended.state if ended else 'gone'}), so it can't be cancelled",
                task_id=str(task),
                state=ended.state if ended else None,
            )
    return Done(outcome=outcome)


VERBS: Mapping[str, Verb] = {
    "cancel": Verb(
        event=Event.CANCEL, wish="cancel", help="End the task; a running one stops at its next checkpoint.", run=cancel
    ),
}


def offered(state: str, want: str | None) -> tuple[str, ...]:
    """Return the verbs that a task in this state, with this wish about it, offers.

    >>> offered("queued", None), offered("running", "cancel"), offered("succeeded", None)
    (('cancel',), (), ())
    """
    now = State(state)
    return tuple(
        name
        for name, verb in VERBS.items()
        if now in TABLE[verb.event].sources or (now is State.RUNNING and verb.wish is not None and want != verb.wish)
    )
