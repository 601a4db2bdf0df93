"""Questions that a task asks people: what may be asked, and what each verb does to a question as it stands. Pure.

A question stands in its own row, so an answer outlives the loss of whoever asked. It is answered once: whoever comes
second is told who was first, and when. Nobody's silence is a yes: a question that runs out pauses or cancels its task.

Invariants: approve and deny act only while the task waits and nobody has decided; a choice is one that was offered.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, get_args

from harness.policy.errors import Invalid
from harness.policy.holds import APPROVAL_TIMEOUT
from harness.policy.lifecycle import State

OnTimeout = Literal["pause", "cancel"]
OnDeny = Literal["cancel", "answer"]

DENIED: Final = "denied"  # what a kind that wants the answer (deny="answer") gets for a no
CHOICES: Final = ("approved",)  # what is offered unless the kind says
TIMEOUT_S: Final = 3 * 86_400.0  # a long weekend
TIMEOUT_LEAST_S: Final = 1.0  # the sweep looks once a second
TIMEOUT_MOST_S: Final = 365 * 86_400.0
PROMPT_MOST_CHARS: Final = 4_000  # what is longer goes to an artifact, its id into the prompt
CHOICES_MOST: Final = 20
CHOICE_MOST_CHARS: Final = 100
NOTE_MOST_CHARS: Final = 500
NAME: Final = "ask"  # of the step, unless the kind says


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """What a task asks. `timeout_s` None: it waits until somebody decides, or its deadline."""

    prompt: str
    choices: Sequence[str] = CHOICES
    timeout_s: float | None = TIMEOUT_S
    on_timeout: OnTimeout = "pause"
    deny: OnDeny = "cancel"


class Act(StrEnum):
    """What is done to the rows; store.transitions has a statement for each."""

    ANSWER = "answer"
    DENY = "deny"
    REASK = "reask"


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """A task and its last question, under the task's lock. `number`, `asks`: which question, asked how often.

    `verdict` None: nobody has decided. `decided`: who and when, for people.
    """

    state: State
    holds: tuple[str, ...] = ()
    number: int | None = None
    asks: int = 0
    open: bool = False
    choices: tuple[str, ...] = ()
    deny: OnDeny = "cancel"
    verdict: str | None = None
    decided: str = ""


@dataclass(frozen=True, slots=True)
class Do:
    """Do it. `choice`: the answer that the kind gets, if one."""

    act: Act
    choice: str | None = None


@dataclass(frozen=True, slots=True)
class No:
    """It can't be done. `why` says of "it", the task; `decided`: because somebody has decided before."""

    why: str
    decided: bool = False


def waits(state: str, *, is_open: bool) -> bool:
    """Whether a task's question may be answered now: it is open, and the task waits for that."""
    return is_open and state == State.WAITING_APPROVAL


def check(question: Question) -> None:
    """Check what a kind asks. Raises: Invalid naming the field.

    >>> check(Question(prompt="Publish?"))
    """
    if not _is_text(question.prompt) or not question.prompt.strip() or len(question.prompt) > PROMPT_MOST_CHARS:
        raise Invalid(
            f"prompt: must be text of 1 to {PROMPT_MOST_CHARS:,} characters; what is longer goes to `ctx.artifacts`, "
            "its id into the prompt",
            field="prompt",
        )
    _check_choices(question.choices)
    if question.timeout_s is not None and not TIMEOUT_LEAST_S <= question.timeout_s <= TIMEOUT_MOST_S:
        raise Invalid(
            f"timeout_s: must be {TIMEOUT_LEAST_S:g} to {TIMEOUT_MOST_S:.0f} seconds, or None, "
            f"not {question.timeout_s}",
            field="timeout_s",
        )
    if question.on_timeout not in get_args(OnTimeout):
        raise Invalid(
            f"on_timeout: must be 'pause' or 'cancel', not {question.on_timeout!r}: silence is never a yes",
            field="on_timeout",
        )
    if question.deny not in get_args(OnDeny):
        raise Invalid(f"deny: must be 'cancel' or 'answer', not {question.deny!r}", field="deny")


def check_note(reason: str) -> str:
    """Return what somebody says to a decision, as it is kept. Raises: Invalid."""
    if len(reason) > NOTE_MOST_CHARS or not reason.isprintable():
        raise Invalid(f"reason: must be printable text of at most {NOTE_MOST_CHARS} characters", field="reason")
    return reason.strip()


def approve(stand: Standing, choice: str | None) -> Do | No:
    """Say yes: with one of the choices, or with the only one. Raises: Invalid (choice).

    >>> stand = Standing(state=State.WAITING_APPROVAL, number=1, asks=1, open=True, choices=("mail", "print"))
    >>> approve(stand, "mail").choice
    'mail'
    """
    if (no := _not_open(stand, "approved")) is not None:
        return no
    if choice is None and len(stand.choices) == 1:
        (choice,) = stand.choices
    if choice not in stand.choices:
        offered = ", ".join(repr(one) for one in stand.choices)
        given = "" if choice is None else f", not {choice!r:.120}"
        raise Invalid(f"choice: must be one of {offered}{given}", field="choice")
    return Do(Act.ANSWER, choice)


def deny(stand: Standing) -> Do | No:
    """Say no: it ends the task, unless the kind wants the answer."""
    if (no := _not_open(stand, "denied")) is not None:
        return no
    return Do(Act.ANSWER, DENIED) if stand.deny == "answer" else Do(Act.DENY)


def reask(stand: Standing) -> Do | No:
    """Ask again what nobody answered in time.

    >>> str(reask(Standing(state=State.PAUSED, holds=("approval_timeout",), number=1, asks=1)).act)
    'reask'
    """
    if stand.state is State.WAITING_APPROVAL and stand.verdict is None:
        return No("it is asked already, and waits for a decision")
    if APPROVAL_TIMEOUT not in stand.holds or stand.number is None:
        return No(f"it is {_said(stand.state)}: only what nobody decided in time is asked again")
    if len(stand.holds) > 1:
        return No("it is held by others too: they resume it first")
    return Do(Act.REASK)


def _not_open(stand: Standing, done: str) -> No | None:
    if waits(stand.state, is_open=stand.open):
        return None
    if stand.verdict is not None:
        return No(f"it was decided already: {stand.decided}", decided=True)
    if APPROVAL_TIMEOUT in stand.holds:
        return No("nobody decided in time, so it is paused: ask again (reask), then decide")
    if stand.state is State.CANCELLED and stand.number is not None:
        return No(f"it has ended (cancelled), so it can't be {done}")
    return No(f"it doesn't wait for a decision: it is {_said(stand.state)}")


def _check_choices(choices: Sequence[str]) -> None:
    if isinstance(choices, str) or not 0 < len(choices) <= CHOICES_MOST:
        raise Invalid(f"choices: must be a list of 1 to {CHOICES_MOST} texts", field="choices")
    for at, choice in enumerate(choices):
        if not (_is_text(choice) and 0 < len(choice) <= CHOICE_MOST_CHARS and choice.isprintable()):
            raise Invalid(
                f"choices[{at}]: must be printable text of 1 to {CHOICE_MOST_CHARS} characters, not {choice!r:.120}",
                field=f"choices[{at}]",
            )
        if choice.strip() != choice or choice == DENIED:
            raise Invalid(
                f"choices[{at}]: {choice!r} can't be one: {DENIED!r} is what a no says, and blanks around a choice "
                "aren't seen",
                field=f"choices[{at}]",
            )
        if choice in choices[:at]:
            raise Invalid(f"choices[{at}]: {choice!r} stands there twice", field=f"choices[{at}]")


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _said(state: State) -> str:
    return state.value.replace("_", " ")
