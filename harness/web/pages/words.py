"""How states, levels, priorities, errors and other wire values are said to people. Text only, and every page's.

Reasons for waiting have their words in policy.reasons: what they mean for a person's next step is said here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from harness.policy.reasons import Who

NB: Final = "\u00a0"

STATES: Mapping[str, str] = {
    "queued": "queued",
    "running": "running",
    "waiting_approval": "waiting for a decision",
    "paused": "paused",
    "failed_retryable": "trying again",
    "succeeded": "done",
    "failed_terminal": "failed",
    "cancelled": "cancelled",
}
PARKED: Final = "waiting for its children"  # `paused` on the wire; nobody paused it
PRIORITIES: Mapping[int, str] = {
    0: "P0, someone is waiting",
    1: "P1, paid or urgent",
    2: "P2, ordinary",
    3: "P3, in the background",
}
WHO: Mapping[str, str] = {Who.YOU: "you can free it", Who.SYSTEM: "eases by itself", Who.PERSON: "needs a person"}
OUTCOMES: Mapping[str, str] = {
    "cancelled": "It is cancelled.",
    "paused": "It is paused until you resume it.",
    "resumed": "It goes on.",
    "held": "Your pause is lifted; another’s remains.",
    "requeued": "It tries again now.",
    "reprioritised": "It has another priority.",
    "redriven": "It was sent again.",
    "wished": "It stops at its next checkpoint.",
    "already": "Nothing was left to do.",
    "approved": "Your answer is taken. It goes on when a slot is free.",
    "answered": "Your no is taken; the task was told of it.",
    "denied": "Your no is taken. The task is cancelled.",
    "reasked": "It asks again.",
    "again": "It was sent again as a new task: this is it.",
    "overridden": "It is set, and acts within seconds.",
    "draining": "It takes nothing new, and goes when what it runs has ended.",
    "acted": "That was sent already; it acted once.",
    "run_cancel": "What was left of it is cancelled; what runs stops at its next checkpoint.",
    "run_paused": "Nothing more of it is started until you resume it.",
    "run_resumed": "It goes on.",
    "run_requeue": "What had failed for now is tried again.",
    "run_redrive": "What had failed was sent again.",
    "run_part": "A part of it is done; press again for the rest.",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """A class of errors in plain words: what happened, and what a person can do, in order."""

    happened: str
    todo: tuple[str, ...]
    again_helps: bool = True


FAILURES: Mapping[str, Failure] = {
    "rate_limit": Failure(
        happened="What it calls kept refusing it, because too much was asked of it at once",
        todo=("Wait until what it calls takes more again.", "Then send it again."),
    ),
    "no_permit": Failure(happened="There was no room for its calls", todo=("Send it again later.",)),
    "timeout": Failure(
        happened="Something that it waited for gave no answer in time",
        todo=(
            "Send it again: an answer that was late once is often in time the next time.",
            "If it fails like this again, give it less to do at once.",
        ),
    ),
    "validation": Failure(
        happened="What it was given, or what it was answered, didn’t have the form that is needed",
        todo=(
            "Read the message: it names the field.",
            "Mend the input and send it as a new task: the same input fails again.",
        ),
        again_helps=False,
    ),
    "permission": Failure(
        happened="It was refused access",
        todo=("Have the right given that the message names.", "Then send it again: its finished steps are kept."),
    ),
    "server_error": Failure(
        happened="What it calls had an error of its own, several times",
        todo=("See whether what it calls works again.", "Then send it again."),
    ),
    "network": Failure(
        happened="What it calls couldn’t be reached", todo=("See whether it can be reached.", "Then send it again.")
    ),
    "bug": Failure(
        happened="Its own code failed",
        todo=(
            "Tell whoever looks after this kind of work; the message says where to look.",
            "Send it again when it is mended.",
        ),
    ),
    "lost": Failure(
        happened="Its worker died while it ran, more than once",
        todo=(
            "It may need more than a worker has: give it less to do at once.",
            "Send it again, or tell the operators.",
        ),
    ),
    "expired": Failure(
        happened="Its time was over before it was done",
        todo=("Send it again, with more time or a higher priority.",),
    ),
    "approval_timeout": Failure(
        happened="Nobody decided in time", todo=("Send it again, and see to it that somebody answers.",)
    ),
    "denied": Failure(
        happened="Its question was answered with no", todo=("Send it again only if the answer has changed.",)
    ),
    "budget": Failure(happened="The budget is spent", todo=("Raise the budget, or wait until it begins anew.",)),
}
# Why a task was cancelled without anybody asking for it (engine.ends).
CANCELLED_WITH: Mapping[str, str] = {
    "dependency_failed": "Cancelled, because what it comes after didn’t succeed",
    "parent_ended": "Cancelled, because the task that began it had ended",
}
UNKNOWN: Final = Failure(happened="It failed", todo=("Read the message.", "Send it again when the cause is gone."))


@dataclass(frozen=True, kw_only=True, slots=True)
class LevelWords:
    """A level of pressure: its sentence (`{driver}`: what drives it), and what is in force."""

    sentence: str
    in_force: str


LEVELS: Mapping[str, LevelWords] = {
    "normal": LevelWords(sentence="all work starts within its target", in_force="Nothing is held back."),
    "elevated": LevelWords(
        sentence="waits grow, batch work steps back",
        in_force="P2 is deferred where its wait would be over its target, P3 has half its weight, retries have half "
        "their budget.",
    ),
    "high": LevelWords(
        sentence="{driver} takes less than there is work for",
        in_force="P2 is deferred, P3 paused but for its floor, fan-out halved, no workers are added.",
    ),
    "critical": LevelWords(
        sentence="{driver} can’t keep up",
        in_force="New P2 and P3 are refused with a time to come back; retries are for P0 and P1; probes come from P0.",
    ),
}


def standing(state: str, *, parked: bool) -> str:
    """Return how a task stands. `parked`: it waits for its children, and for nothing else.

    >>> standing("paused", parked=False), standing("paused", parked=True)
    ('paused', 'waiting for its children')
    """
    return PARKED if parked else STATES[state]


def standing_of(state: str, n: int, parked: int) -> str:
    """Return how `n` tasks of one state stand, of which so many are `parked`.

    >>> standing_of("paused", 3, 3), standing_of("paused", 3, 1), standing_of("queued", 3, 0)
    ('waiting for children', 'paused or waiting for children', 'queued')
    """
    if not parked or state != "paused":
        return STATES[state]
    return "waiting for children" if parked == n else "paused or waiting for children"


def failure(error_class: str | None) -> Failure:
    """Return a class of errors in words; one that nobody knows says only that it failed."""
    return FAILURES.get(error_class or "", UNKNOWN)


def counted(n: int, one: str, many: str = "") -> str:
    """Return a number with its noun.

    >>> counted(1, "child", "children"), counted(1200, "file")
    ('1\\xa0child', '1,200\\xa0files')
    """
    return f"{n:,}{NB}{one if n == 1 else many or one + 's'}"


def person(actor: str) -> str:
    """Return who did something, as people call them.

    >>> person("staff:mara"), person("key ab12"), person("worker llm+db")
    ('mara', 'key ab12', 'worker llm+db')
    """
    return actor.removeprefix("staff:")
