"""What each verb of a person does to a task as it stands. Pure; one function a verb, listed in DECIDE.

The store asks under the task's lock and runs the step that comes back, so a verb is decided in one place: what admin
and API offer, what a bulk verb skips, and what a refusal says.

Invariants: a step's event can happen in the state that it was decided for (lifecycle.TABLE); a verb done twice finds
`already`, or refuses, and never changes more; nobody lifts another's hold.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from harness.policy.holds import CANCEL, OPERATOR, PEOPLE, TENANT, pause_wish, wished_holds
from harness.policy.lifecycle import TERMINAL, State


class Step(StrEnum):
    """What is done to the row; store.transitions has a statement for each."""

    CANCEL = "cancel"
    WISH = "wish"
    PAUSE = "pause"
    RESUME = "resume"
    REQUEUE = "requeue"
    REPRIORITISE = "reprioritise"
    REDRIVE = "redrive"


@dataclass(frozen=True, kw_only=True, slots=True)
class Stand:
    """How a task stands under its lock. `leased`: it has a slot; `waits`: for its not_before."""

    state: State
    want: str | None = None
    holds: tuple[str, ...] = ()
    leased: bool = False
    waits: bool = False
    priority: int = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What a verb was called with: whose hold it sets or lifts, and what only this verb needs."""

    hold: str = OPERATOR
    priority: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """A step with the outcome that it has (`want`: of a wish), or no step: `already`, or `refused` and why."""

    outcome: str
    step: Step | None = None
    want: str | None = None
    why: str = ""


Decide = Callable[[Stand, Asked], Decision]
ALREADY = Decision(outcome="already")
_WHO: Mapping[str, str] = {
    OPERATOR: "an operator",
    TENANT: "the tenant",
    "version": "the system, until a worker knows its kind and version",
    "children": "the tasks that it waits for",
    "approval_timeout": "an approval that nobody gave in time",
    "pressure": "the pressure on what it needs",
}


def refused(why: str) -> Decision:
    """The verb can't act here. `why` says of "it" for people, from a closed set: bulk verbs count by it."""
    return Decision(outcome="refused", why=why)


def holders(holds: tuple[str, ...]) -> str:
    """Say who holds a task.

    >>> holders(("operator", "tenant"))
    'an operator and the tenant'
    """
    return " and ".join(_WHO.get(hold, hold) for hold in sorted(holds))


def cancel(stand: Stand, asked: Asked) -> Decision:
    """End it; a running one is asked to stop. A wish to pause gives way."""
    match stand.state:
        case State.CANCELLED:
            return ALREADY
        case State.RUNNING:
            if stand.want == CANCEL:
                return ALREADY
            return Decision(outcome="wished", step=Step.WISH, want=CANCEL)
        case state if state in TERMINAL:
            return _ended(state, "cancelled")
        case _:
            return Decision(outcome="cancelled", step=Step.CANCEL)


def pause(stand: Stand, asked: Asked) -> Decision:
    """Hold it until the same one resumes it; a running one is asked to stop."""
    match stand.state:
        case State.RUNNING:
            if stand.want == CANCEL:
                return refused("it is being cancelled, so it can't be paused")
            held = wished_holds(stand.want)
            if asked.hold in held:
                return ALREADY
            return Decision(outcome="wished", step=Step.WISH, want=pause_wish({*held, asked.hold}))
        case State.PAUSED:
            return ALREADY if asked.hold in stand.holds else Decision(outcome="paused", step=Step.PAUSE)
        case State.QUEUED | State.FAILED_RETRYABLE:
            return Decision(outcome="paused", step=Step.PAUSE)
        case State.WAITING_APPROVAL:
            return refused("it waits for a decision, or has one and waits for its slot: decide, or cancel the task")
        case state:
            return _ended(state, "paused")


def resume(stand: Stand, asked: Asked) -> Decision:
    """Lift one's own hold, or take back one's own wish."""
    match stand.state:
        case State.RUNNING:
            held = wished_holds(stand.want)
            if asked.hold in held:
                left = pause_wish({*held} - {asked.hold})
                return Decision(outcome="resumed" if left is None else "held", step=Step.WISH, want=left)
            if stand.want == CANCEL:
                return refused("it is being cancelled, which can't be taken back")
            return _not_held(held, "it runs, and isn't held by anyone")
        case State.PAUSED:
            if asked.hold in stand.holds:
                return Decision(outcome="resumed" if len(stand.holds) == 1 else "held", step=Step.RESUME)
            return _not_held(stand.holds, "it isn't held by anyone")
        case state if state in TERMINAL:
            return _ended(state, "resumed")
        case state:
            return refused(f"it isn't held: it is {state}")


def requeue(stand: Stand, asked: Asked) -> Decision:
    """Try it again now instead of after its back-off."""
    match stand.state:
        case State.FAILED_RETRYABLE:
            return Decision(outcome="requeued", step=Step.REQUEUE)
        case State.QUEUED:
            if stand.waits:
                return refused("it is queued and waits for its not_before; only a failed try is sent again")
            return ALREADY
        case State.PAUSED:
            return refused("it is paused: resume it instead")
        case State.FAILED_TERMINAL | State.CANCELLED:
            return refused(f"it has ended ({stand.state}): redrive it instead")
        case state:
            return refused(f"it is {state}; only a task that failed and may try again is sent again")


def priority(stand: Stand, asked: Asked) -> Decision:
    """Move it to another priority, hence another flow. What it was promised (start_by) stays."""
    if stand.state not in TERMINAL and stand.priority == asked.priority:
        return ALREADY
    if stand.state is not State.QUEUED:
        return refused(f"it is {stand.state}; only a queued task can change its priority")
    if stand.leased:
        return refused("it has been released to a worker, so its priority has done its work")
    return Decision(outcome="reprioritised", step=Step.REPRIORITISE)


def redrive(stand: Stand, asked: Asked) -> Decision:
    """Send it again from the beginning. What else must be so of its kind and its tenant: policy.redrive, admission."""
    match stand.state:
        case State.FAILED_TERMINAL | State.CANCELLED:
            return Decision(outcome="redriven", step=Step.REDRIVE)
        case State.QUEUED:
            return ALREADY
        case state:
            return refused(f"it is {state}; only one that has failed for good or was cancelled is sent again")


def _ended(state: State, done: str) -> Decision:
    return refused(f"it has ended ({state}), so it can't be {done}")


def _not_held(holds: tuple[str, ...], nobody: str) -> Decision:
    if not holds:
        return refused(nobody)
    others = tuple(hold for hold in holds if hold in PEOPLE) or holds
    return refused(f"it is held by {holders(others)}, not by you")
