"""What a viewer can do to a task as it stands: its buttons, each with a token of this moment, and what they do.

Which verbs are offered is decided where they are done (engine.operate, engine.approve); here they get their words.
"""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from harness.engine import approve, operate, submit
from harness.policy.approvals import NOTE_MOST_CHARS
from harness.policy.errors import Conflict, NotFound
from harness.policy.holds import CANCEL, OPERATOR, TENANT
from harness.policy.lifecycle import State
from harness.store import queries
from harness.store.database import Connection
from harness.web.pages import forms, telling, words
from harness.web.pages.access import Viewer
from harness.web.pages.forms import Button
from harness.web.pages.seen import Seen
from harness.web.service import Service


@dataclass(frozen=True, kw_only=True, slots=True)
class Press:
    """A verb as a button. `verb`: of engine.operate, else what it is called here."""

    label: str
    doing: str
    look: str = ""


PRESSES: Final = {
    "requeue": Press(label="Try now", doing="Trying", look="primary"),
    "resume": Press(label="Resume", doing="Resuming", look="primary"),
    "reask": Press(label="Ask again", doing="Asking", look="primary"),
    "redrive": Press(label="Send again", doing="Sending", look="primary"),
    "again": Press(label="Run again", doing="Sending"),
    "raise": Press(label="Raise its priority", doing="Raising"),
    "pause": Press(label="Pause", doing="Pausing"),
    "cancel": Press(label="Cancel", doing="Cancelling", look="danger"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """The form under what a task asks: its choices as buttons, deny, and one token for whichever is pressed."""

    path: str
    token: str
    choices: Sequence[tuple[str, str]]  # value, label
    note_most: int
    after: str


def buttons(seen: Seen, viewer: Viewer) -> list[Button]:
    """Return the buttons under You can, in the order of PRESSES. A decision has a form of its own."""
    if not viewer.may_act:
        return []
    return [
        Button(
            id=f"do-{verb}",
            label=f"Raise to P{seen.task.priority - 1}" if verb == "raise" else press.label,
            path=f"{viewer.task_path(seen.task.public_id)}do/{verb}",
            token=forms.token(viewer, purpose(verb, seen.task.public_id, str(seen.seq)), now=seen.now),
            doing=press.doing,
            look="" if verb == "redrive" and not _helps(seen) else press.look,
        )
        for verb, press in PRESSES.items()
        if verb in offered(seen, viewer)
    ]


def offered(seen: Seen, viewer: Viewer) -> set[str]:
    """Return the verbs that would do something now."""
    task = seen.task
    hold = OPERATOR if viewer.is_operator else TENANT
    can = {
        *operate.offered(task.state, task.want, task.holds, hold=hold, leased=task.released),
        *approve.offered(task.state, task.holds, decided=task.ready or task.released),
    }
    if "priority" in can and task.priority > 0:
        can.add("raise")
    if seen.state is State.SUCCEEDED and not viewer.is_operator:
        can.add("again")
    return can & PRESSES.keys()


def question(seen: Seen, viewer: Viewer) -> Question | None:
    """Return the form of a decision, if the viewer may take one now."""
    asked = seen.question
    if asked is None or not viewer.may_act or not seen.undecided or not asked.open:
        return None
    only = asked.choices[0] if len(asked.choices) == 1 else None
    labels = [(choice, "Approve" if choice == "approved" and only else choice) for choice in asked.choices]
    no = "Denying cancels the task." if asked.deny == "cancel" else "A no goes to the task, which goes on with it."
    return Question(
        path=f"{viewer.task_path(seen.task.public_id)}do/decide",
        token=forms.token(viewer, purpose("decide", seen.task.public_id, f"{asked.id} {asked.asks}"), now=seen.now),
        choices=labels,
        note_most=NOTE_MOST_CHARS,
        after=f"It is decided once, and your name and note stay with it. {no}",
    )


def _helps(seen: Seen) -> bool:
    return words.failure(telling.error_class(seen)).again_helps


def explained(seen: Seen, viewer: Viewer) -> str:
    """Return the line under the buttons: what they do, or why there are none."""
    task = seen.task
    can = offered(seen, viewer)
    if not viewer.may_act:
        return "This link shows it and changes nothing." if viewer.link else "Your login may look, and not act."
    match seen.state:
        case State.RUNNING if task.want == CANCEL:
            return "It is being cancelled, which can’t be taken back; it stops at its next checkpoint."
        case State.RUNNING:
            return "Either takes effect at its next checkpoint: between two steps or calls. Finished steps are kept."
        case State.QUEUED if task.released:
            return "It has a place and starts now; to cancel it still takes effect at once."
        case State.QUEUED:
            return "Nothing of it has begun, or its finished steps are kept; each takes effect at once."
        case State.WAITING_APPROVAL:
            return "Cancelling ends it without an answer."
        case State.PAUSED if "resume" in can or "reask" in can:
            return "Finished steps are kept."
        case State.PAUSED:
            return "It can be cancelled; what holds it isn’t yours to lift."
        case State.FAILED_RETRYABLE:
            return "It tries again by itself; its finished steps are kept."
        case State.SUCCEEDED:
            return "It has ended, so it can’t be cancelled. To run it again makes a new task with the same input."
        case State.FAILED_TERMINAL if not _helps(seen):
            return "It has ended, so it can’t be cancelled. Sent again as it is, it would fail again."
        case _:
            return "It has ended, so it can’t be cancelled. Sent again, it keeps its steps that are finished."


def purpose(verb: str, task: uuid.UUID, moment: str) -> str:
    """Return what a button's token is for. `moment`: of the task, so that the same button later is another."""
    return f"{verb} task {task} {moment}"


def verb_on(
    verb: str, task: uuid.UUID, *, viewer: Viewer, tenant: int, reason: str, key: str, serving: Service
) -> Callable[[Connection], tuple[str, uuid.UUID]]:
    """Return what does a verb: given a connection it returns the outcome and the task to go to. Raises: NotFound."""
    whose = viewer.tenant
    given = {"tenant": whose, "actor": viewer.actor, "reason": reason}

    def act(connection: Connection) -> tuple[str, uuid.UUID]:
        if verb == "again":
            return "again", _again(connection, task, tenant=tenant, actor=viewer.actor, key=key, serving=serving)
        if verb == "reask":
            return approve.reask(connection, task, **given).outcome, task  # type: ignore[arg-type]  # as given above
        if verb == "raise":
            with queries.as_tenant(connection, tenant):
                wanted = max(0, queries.the_task(connection, task).priority - 1)
            done = operate.VERBS["priority"].run(connection, task, priority=wanted, **given)
            return done.outcome, task
        if verb not in operate.VERBS or verb not in PRESSES:
            raise NotFound(f"there is no button {verb!r}")
        return operate.VERBS[verb].run(connection, task, **given).outcome, task

    return act


def decide(
    connection: Connection, task: uuid.UUID, *, viewer: Viewer, choice: str | None, reason: str, only: tuple[int, int]
) -> str:
    """Answer what a task asks; without a choice: no. Returns the outcome.

    Raises: Invalid, Conflict, NotFound, Unavailable.
    """
    if choice is None:
        done = approve.deny(connection, task, tenant=viewer.tenant, actor=viewer.actor, reason=reason, only=only)
    else:
        done = approve.approve(
            connection, task, choice=choice, tenant=viewer.tenant, actor=viewer.actor, reason=reason, only=only
        )
    return done.outcome


def _again(
    connection: Connection, task: uuid.UUID, *, tenant: int, actor: str, key: str, serving: Service
) -> uuid.UUID:
    with queries.as_tenant(connection, tenant):
        found = queries.the_task(connection, task)
        given = queries.input_of(connection, found.id)
        facts = queries.tenant_facts(connection, tenant)
    if facts is None or given is None:
        raise Conflict("its input isn't kept any more, so it can't run again")
    again = submit.TaskRequest(
        kind=found.kind, input=given, priority=found.priority, title=found.title or "", tags=found.tags or ()
    )
    checked = submit.check(serving.door, facts, [again], idempotency_key=key)
    return submit.commit(serving.door, connection, facts, checked, actor=actor).task_ids[0]
