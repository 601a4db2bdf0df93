"""A run in sentences: how it stands, when it ends, what holds it, and why parts of it failed. Text from facts alone.

Nothing said here changes by the clock while the run stands still, so a page that is renewed doesn't move.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from harness.engine.expect import NONE, STALE, Foreseen
from harness.engine.why import said_at
from harness.policy.lifecycle import TERMINAL, State
from harness.policy.reasons import Reason, told
from harness.store.pauses import PauseRow
from harness.store.queries import RunView
from harness.store.runs import Cause
from harness.web.pages import times, words
from harness.web.pages.words import counted

Counts = Mapping[State, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """One of the answers: its question, the answer, and what is said below."""

    asks: str
    says: str
    more: str = ""


def total(counts: Counts) -> int:
    """Return how many tasks there are."""
    return sum(counts.values())


def ended(counts: Counts) -> int:
    """Return how many tasks have ended."""
    return sum(n for state, n in counts.items() if state in TERMINAL)


def over(counts: Counts) -> bool:
    """Whether all tasks have ended."""
    return ended(counts) == total(counts)


def sentence(counts: Counts, *, paused: bool) -> tuple[State, str]:
    """Return how a run stands: a state whose mark fits, and the sentence.

    >>> sentence({State.RUNNING: 2, State.SUCCEEDED: 3, State.FAILED_TERMINAL: 1}, paused=False)
    (<State.RUNNING: 'running'>, 'Running: 3 of 6\\xa0tasks done, 1 failed')
    >>> sentence({State.SUCCEEDED: 6}, paused=False)[1], sentence({State.CANCELLED: 2}, paused=False)[1]
    ('Done: all 6\\xa0tasks', 'Cancelled: none of 2\\xa0tasks was done')
    """
    n, done, failed = total(counts), counts.get(State.SUCCEEDED, 0), counts.get(State.FAILED_TERMINAL, 0)
    of_all = f"{done:,} of {counted(n, 'task')} done"
    if over(counts):
        if n == 0:
            return State.CANCELLED, "Empty: its tasks were deleted"
        if failed:
            return State.FAILED_TERMINAL, f"Failed: {failed:,} of {counted(n, 'task')}"
        if done == n:
            return State.SUCCEEDED, "Done: its task" if n == 1 else f"Done: all {counted(n, 'task')}"
        if done:
            return State.SUCCEEDED, f"Done: {done:,} of {counted(n, 'task')}, the others cancelled"
        return State.CANCELLED, f"Cancelled: none of {counted(n, 'task')} was done"
    if failed:
        of_all += f", {failed:,} failed"
    if paused:
        return State.PAUSED, f"Paused: {of_all}"
    for state, word in (
        (State.RUNNING, "Running"),
        (State.QUEUED, "Queued"),
        (State.FAILED_RETRYABLE, "Trying again"),
        (State.WAITING_APPROVAL, "Waiting for a decision"),
    ):
        if counts.get(state):
            return state, f"{word}: {of_all}"
    return State.PAUSED, f"Paused: {of_all}"


def when(run: RunView, counts: Counts, foreseen: Foreseen | None, last_end: datetime | None, now: datetime) -> Answer:
    """Return when a run ends, or ended."""
    if over(counts):
        if last_end is None:
            return Answer(asks="When", says=f"Submitted at {times.clock(run.created_at, now)}")
        took = times.lasted((last_end - run.created_at).total_seconds())
        return Answer(asks="When", says=f"Ended at {times.clock(last_end, now)}", more=f"After {took}.")
    if foreseen is None or foreseen.end is None:
        said = foreseen.words if foreseen is not None and foreseen.words else "It is told soon."
        if foreseen is not None and foreseen.reason in (STALE, NONE):
            said = "No forecasts are made at the moment."  # why not is for operators
        return Answer(asks="When", says="No end is told yet", more=said)
    span = foreseen.end
    more = f"{_capital(times.length(span.p50, span.p90, now))}."
    if foreseen.moved:
        more += f" It moved: {foreseen.moved}."
    return Answer(asks="When", says=f"Done {times.between(span.p50, span.p90, now)}", more=more)


def why(
    counts: Counts,
    reasons: Sequence[tuple[Reason, datetime]],
    pauses: Sequence[PauseRow],
    causes: Sequence[Cause],
    now: datetime,
) -> Answer | None:
    """Return what holds a run or, when it is over, why parts of it failed; None: there is nothing to say."""
    if over(counts):
        first = next((one for one in causes if one.state == State.FAILED_TERMINAL), None)
        if first is None:
            return None
        failed = counts.get(State.FAILED_TERMINAL, 0)
        which = "all of them" if first.n >= failed else f"{first.n:,} of {failed:,}"
        said = cause(first)
        return Answer(asks="Why", says=said["says"], more=f"So {which}. {said['more']}".strip())
    if pauses:
        one = pauses[0]
        by = f"Paused by {words.person(one.author)} since {times.clock(one.created_at, now)}"
        because = f"“{one.reason}”. " if one.reason else ""
        until = f" or at {times.clock(one.until, now)}" if one.until else ""
        lifts = {"tenant": "you resume it", "operator": "an operator resumes it"}.get(one.source, "the pressure falls")
        return Answer(asks="Why", says=by, more=f"{because}Nothing of it is started until {lifts}{until}.")
    waiting = _waiting(counts)
    if reasons and counts.get(State.QUEUED):
        reason, _ = reasons[0]
        said_of = told(reason, lambda at_s: said_at(at_s, now))
        return Answer(asks="Why", says=said_of.words.rstrip("."), more=f"{said_of.frees} {waiting}".strip())
    if counts.get(State.RUNNING):
        return Answer(asks="Why", says="Nothing holds it up", more=waiting)
    return Answer(asks="Why", says=waiting.rstrip(".") or "Nothing of it runs now")


def cause(found: Cause) -> dict[str, str]:
    """Return what is said of failures alike: in words for their class and the message, or the message alone."""
    if found.state == State.CANCELLED:
        return {"says": words.CANCELLED_WITH.get(found.error_class, "Cancelled with another task"), "more": ""}
    happened = words.failure(found.error_class)
    if happened is words.UNKNOWN and found.message:
        return {"says": _capital(found.message), "more": ""}
    return {"says": happened.happened, "more": found.message}


def _waiting(counts: Counts) -> str:
    """What of it doesn't run, in one sentence."""
    parts = [
        f"{counts[state]:,} {said}"
        for state, said in (
            (State.QUEUED, "queued"),
            (State.WAITING_APPROVAL, "waiting for a decision"),
            (State.FAILED_RETRYABLE, "trying again"),
            (State.PAUSED, "paused or waiting for children"),
        )
        if counts.get(state)
    ]
    return f"{_capital(', '.join(parts))}." if parts else ""


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"
