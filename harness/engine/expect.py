"""What people are told of a task's or run's start and end: the last pass's forecast, or why there is none. Reads only.

A number is shown only while passes are made and what it was made for is still so: one of a task that was paused since,
or that nobody has looked at for STALE_S, is withheld, and the reason says so.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from harness.policy.eta import Trust
from harness.policy.holds import CHILDREN
from harness.policy.lifecycle import TERMINAL, State
from harness.policy.reasons import Code, label
from harness.store import forecasts
from harness.store.database import Connection
from harness.store.forecasts import Expected, Pass
from harness.store.queries import RunView, TaskView

STALE_S = 60.0  # passes come every 10 s

SOON, FAR, WITHDRAWN, STALE, NONE = "soon", "far", "withdrawn", "stale", "none"
WORDS = {
    SOON: "It has just come in line: the next pass tells it, within seconds.",
    FAR: "Too much stands before it to tell.",
    WITHDRAWN: "Forecasts have been wrong too often lately, so none is shown.",
    STALE: "No forecast has been made for a minute: is beat running, and a worker of the pool system?",
    NONE: "No forecast has been made yet: is beat running, and a worker of the pool system?",
}
TRUST = {
    Trust.LEARNING: "too few have been borne out yet to say",
    Trust.GOOD: "they are borne out as they should be",
    Trust.WIDENED: "too many came later than said, so ranges are wider",
    Trust.WITHDRAWN: "most came later than said, so none is shown",
}
# What holds a task that isn't in line, where nobody knows for how long.
HELD = {
    State.PAUSED: (Code.HELD, "It is paused: see why."),
    State.WAITING_APPROVAL: (Code.APPROVAL, "It waits for a decision."),
    State.FAILED_RETRYABLE: (Code.RETRY, "It failed and is tried again: see why."),
}
# What keeps tasks of a run out of line (forecasts.outside), so that nobody can tell when its last one ends.
OF_RUN = (
    (Code.APPROVAL, "Waiting for a decision: {n:,} of its tasks. Its end is told when all of them are in line."),
    (Code.HELD, "Held, or waiting for children: {n:,} of its tasks. Its end is told when all of them are in line."),
    (Code.DEPENDENCIES, "Waiting for others of it: {n:,} of its tasks. Its end is told when all of them are in line."),
)
PARKED = (Code.CHILDREN, "It is waiting for its children: see why.")
DEPENDENT = (Code.DEPENDENCIES, "It is waiting for tasks that it depends on: see why.")


@dataclass(frozen=True, slots=True)
class Span:
    """A moment as a range: as likely before `p50` as after; 9 of 10 times before `p90` (None: not in sight)."""

    p50: datetime
    p90: datetime | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Foreseen:
    """The answer. `reason`: why there is no range, in `words`; `moved`: what let it jump; `at`: when it was made."""

    position: int | None = None
    start: Span | None = None
    end: Span | None = None
    reason: str | None = None
    words: str | None = None
    moved: str | None = None
    at: datetime | None = None
    age_s: float | None = None


def of_tasks(connection: Connection, tasks: Sequence[TaskView]) -> dict[int, Foreseen]:
    """Return what is expected of tasks that have not ended, by id."""
    live = [task for task in tasks if task.state not in TERMINAL]
    if not live:
        return {}
    made = forecasts.last_pass(connection)
    found = forecasts.of_tasks(connection, [task.id for task in live])
    return {task.id: _of_task(task, found.get(task.id), made) for task in live}


def of_run(connection: Connection, run: RunView) -> Foreseen | None:
    """Return when a run is expected to end; None: it has."""
    if not any(state not in TERMINAL for state in run.states):
        return None
    made = forecasts.last_pass(connection)
    missing = _missing(made)
    if made is None or missing is not None:
        return _without(missing or NONE, made)
    found = forecasts.of_run(connection, run.id)
    if (found is None or found.reason == FAR) and (outside := _outside(connection, run)) is not None:
        code, words = outside
        return Foreseen(reason=code, words=words, at=made.at, age_s=max(0.0, made.age_s))
    if found is None:
        return _without(SOON if made.looked_at >= made.waiting or run.created_at > made.at else FAR, made)
    if found.end_p50 is None:
        return _without(found.reason, made)
    return Foreseen(
        end=Span(found.end_p50, found.end_p90), moved=found.moved or None, at=made.at, age_s=max(0.0, made.age_s)
    )


def _outside(connection: Connection, run: RunView) -> tuple[Code, str] | None:
    """Return what keeps tasks of a run out of line, in words; what only a person can lift first. None: nothing does."""
    for n, (code, words) in zip(forecasts.outside(connection, run.id), OF_RUN, strict=True):
        if n:
            return code, words.format(n=n)
    return None


def _of_task(task: TaskView, found: Expected | None, made: Pass | None) -> Foreseen:
    missing = _missing(made)
    if made is None or missing is not None:
        return _without(missing or NONE, made)
    state = State(task.state)
    outside = state in HELD and not (task.ready or task.released)
    if outside and not (state is State.FAILED_RETRYABLE and found is not None):
        code, words = PARKED if task.holds == [CHILDREN] else HELD[state]
        return Foreseen(reason=code, words=words, at=made.at, age_s=max(0.0, made.age_s))
    if task.depends:
        code, words = DEPENDENT
        return Foreseen(reason=code, words=words, at=made.at, age_s=max(0.0, made.age_s))
    if found is None:
        return _without(SOON if made.looked_at >= made.waiting or task.created_at > made.at else FAR, made)
    begun = state is State.RUNNING or task.released
    start = None if begun or found.start_p50 is None else Span(found.start_p50, found.start_p90)
    end = None if found.end_p50 is None else Span(found.end_p50, found.end_p90)
    if found.reason and not begun:
        return _without(found.reason, made, found)
    return Foreseen(
        position=None if begun else found.position,
        start=start,
        end=end,
        moved=found.moved or None,
        at=made.at,
        age_s=max(0.0, made.age_s),
    )


def _missing(made: Pass | None) -> str | None:
    if made is None:
        return NONE
    return STALE if made.age_s > STALE_S else None


def _without(reason: str, made: Pass | None, found: Expected | None = None) -> Foreseen:
    words = WORDS.get(reason)
    if words is None:
        words = label(Code(reason), found.subject if found else "")
    return Foreseen(
        position=found.position if found else None,
        reason=reason,
        words=words,
        at=made.at if made else None,
        age_s=max(0.0, made.age_s) if made else None,
    )


def published(made: Pass | None) -> dict[str, Any]:
    """Return when the last forecasts were made and how earlier ones were borne out; None: there was no pass yet."""
    trust = made.trust if made else Trust.LEARNING
    found = made.calibration if made else {}
    return {
        "trust": trust,
        "words": TRUST[trust],
        "at": made.at if made else None,
        "age_s": max(0.0, made.age_s) if made else None,
        "stale": _missing(made) is not None,
        "took_s": made.took_s if made else None,
        "waiting": made.waiting if made else None,
        "looked_at": made.looked_at if made else None,
        "n": found.get("n", 0),
        **{name: found.get(name) for name in ("p50_covers", "p90_covers", "spread", "pinball_s", "pinball_ratio")},
    }
