"""What a step of an attempt is, given what earlier attempts have recorded: to be replayed, to be done, or another one.

T1  Steps with one key follow each other: they are a line, and a step's place is its position there, from 1. Steps
    without a key are a line too, the main one. Steps of different lines may come in any order, and at the same time.
T2  The step at a place must have the name that is recorded there; with another name the code has changed under the
    task: nothing of it is done (Differs).
T3  A line that is recorded is gone through before it grows; the main line grows only when all that is recorded on
    every line was gone through: a step that nobody knows, while recorded ones are missing, is one that was renamed.
T4  What is recorded as finished is replayed, and what began without finishing is done again, under the same token.
T5  A token is made of the task's token (hence its epoch), the line, the place and the name, never of an attempt.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from harness.policy.errors import Invalid

STARTED: Final = "step_started"
FINISHED: Final = "step_finished"
REPLAYED: Final = "steps_replayed"
EVENTS: Final = frozenset({STARTED, FINISHED, REPLAYED})  # in the trace, but no change of state: running -> running

MAIN: Final = ""  # the key of steps without one
NAME_MAX_CHARS = 100
STEPS_MOST = 10_000  # of one task: each writes two events, and an attempt reads all of them when it begins again


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """A step as earlier attempts left it. `ordinal`: in which order the steps of the task began first, from 1."""

    ordinal: int
    key: str
    name: str
    finished: bool


@dataclass(frozen=True, slots=True)
class Replay:
    """It has finished: its result is there."""

    record: Record


@dataclass(frozen=True, slots=True)
class Again:
    """It has begun, but not finished: do it, under the token that it had."""

    record: Record


@dataclass(frozen=True, slots=True)
class New:
    """Nothing is known of it: do it."""


@dataclass(frozen=True, slots=True)
class Differs:
    """The code has changed under the task. `message` says how, for the trace; `record`: what didn't come."""

    message: str
    record: Record


def decide(
    line: Sequence[Record], place: int, *, key: str, name: str, missing: Record | None
) -> Replay | Again | New | Differs:
    """Decide on a step. `line`: what is recorded under its key, in order; `missing`: a record of another line, if any,
    that this attempt hasn't come to.

    >>> one = Record(ordinal=1, key="", name="search", finished=True)
    >>> decide([one], 1, key="", name="search", missing=None) == Replay(one)
    True
    >>> decide([one], 2, key="", name="write", missing=None)
    New()
    >>> decide([one], 1, key="", name="find", missing=None).message
    "step 1 is 'find', but it was recorded as 'search'"
    """
    if place <= len(line):
        record = line[place - 1]
        if record.name != name:
            return Differs(f"{_at(place, key)} is {name!r}, but it was recorded as {record.name!r}", record)
        return Replay(record) if record.finished else Again(record)
    if key == MAIN and missing is not None:
        recorded = f"{missing.name!r}{f' of {missing.key!r}' if missing.key else ''}"
        return Differs(
            f"{_at(place, key)} is {name!r}, which isn't recorded, and {recorded}, which is, never came", missing
        )
    return New()


def token(of_task: str, *, key: str, place: int, name: str) -> str:
    """Return the idempotency token of a step's effect: the same over all attempts, another for every other step.

    >>> token("harness-7", key="", place=2, name="publish")
    'harness-7-s2-8c35561de17f'
    """
    known = sha256(f"{key}\0{name}".encode()).hexdigest()[:12]
    return f"{of_task}-s{place}-{known}"


def check(what: str, text: str) -> None:
    """Check a step's name or key. Raises: Invalid naming which."""
    if len(text) > NAME_MAX_CHARS or not text.isprintable() or (what == "name" and not text):
        raise Invalid(
            f"a step's {what} is 1 to {NAME_MAX_CHARS} printable characters, not {text!r:.120}", field=f"step.{what}"
        )


def _at(place: int, key: str) -> str:
    return f"step {place} of {key!r}" if key else f"step {place}"
