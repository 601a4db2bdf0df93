"""What a task's page says first: the state as a sentence, When, Why. Text from what was read; nothing is looked up.

The sentence holds the state's most useful fact; When is a range or the reason why there is none, never one exact
number; Why says what binds first, and what would free it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from harness.engine import expect
from harness.engine.expect import Span
from harness.policy.eta import Trust
from harness.policy.holds import APPROVAL_TIMEOUT, CANCEL, CHILDREN, OPERATOR, TENANT, VERSION
from harness.policy.lifecycle import State
from harness.policy.reasons import AHEAD_MOST, Code
from harness.web.pages import words
from harness.web.pages.seen import Seen, said
from harness.web.pages.times import NB, about, between, clock, lasted, length

BORNE_LEAST = 20  # forecasts that were borne out before their record is told
NOTE_MOST_CHARS = 160


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer: what is said first, and what is said below it."""

    first: str
    below: Sequence[str] = ()


def sentence(seen: Seen) -> str:
    """Return the state as a sentence."""
    task, now = seen.task, seen.now
    since = clock(seen.since(), now)
    match seen.state:
        case State.QUEUED:
            return f"Queued: {_queued(seen)}"
        case State.RUNNING if task.want == CANCEL:
            return "Running: being cancelled"
        case State.RUNNING if task.want:
            return "Running: being paused"
        case State.RUNNING:
            current = next((one for one in reversed(seen.steps) if one.finished_at is None), None)
            if current is not None:
                return f"Running: {_step_name(current.name)}, step{NB}{current.ordinal}"
            return f"Running since {since}"
        case State.WAITING_APPROVAL if seen.undecided:
            return f"Waiting for a decision since {since}"
        case State.WAITING_APPROVAL:
            decided = seen.last("approve", "deny")
            what = "Answered" if decided is not None and decided.event == "deny" else "Approved"
            return f"{what} at {clock(decided.at, now) if decided else since}, waiting for a slot"
        case State.PAUSED:
            return _paused(seen, since)
        case State.FAILED_RETRYABLE:
            at = f" at {clock(task.not_before, now)}" if task.not_before else ""
            return f"Trying again{at}, attempt{NB}{task.attempts_used + 1}"
        case State.SUCCEEDED:
            return f"Done at {clock(task.finished_at or seen.since(), now)}"
        case State.FAILED_TERMINAL:
            return f"Failed: {_lower(words.failure(error_class(seen)).happened)}"
        case State.CANCELLED:
            return f"Cancelled{_by(seen)} at {clock(task.finished_at or seen.since(), now)}"


def when(seen: Seen) -> Answer:
    """Return when it starts, ends, goes on, or how long it took."""
    task, now, eta = seen.task, seen.now, seen.eta
    match seen.state:
        case State.SUCCEEDED | State.CANCELLED | State.FAILED_TERMINAL:
            return _ended(seen)
        case State.RUNNING if eta is not None and eta.end is not None:
            return Answer(f"Done {between(eta.end.p50, eta.end.p90, now)}", (_ranges(seen, eta.end),))
        case State.WAITING_APPROVAL if seen.undecided:
            return _after_decision(seen)
        case State.FAILED_RETRYABLE if task.not_before is not None and (eta is None or eta.start is None):
            return Answer(f"Tried again at {clock(task.not_before, now, seconds=True)}")
        case _ if eta is not None and eta.start is not None:
            below = [_ranges(seen, eta.start)]
            if eta.end is not None:
                below.append(f"Done {between(eta.end.p50, eta.end.p90, now)}.")
            if eta.moved:
                below.append(f"It moved, because {MOVED.get(eta.moved, 'the line has changed')}.")
            return Answer(f"Starts {between(eta.start.p50, eta.start.p90, now)}", below)
        case State.QUEUED if task.not_before is not None and not task.deferred and task.not_before > now:
            return Answer(
                f"In line at {clock(task.not_before, now)}", (f"In {about(_until_s(task.not_before, now))}.",)
            )
        case State.PAUSED:
            return Answer(_goes_on(seen))
        case _ if eta is not None and eta.words:
            return Answer("No forecast", (UNFORESEEN.get(eta.reason or "", eta.words),))
        case _:
            return Answer("No forecast", ("None has been made yet.",))


# To those who wait, not to operators: what it means for them, not which process is missing.
UNFORESEEN = {
    expect.STALE: "None is being made at the moment. Its place in line isn’t affected.",
    expect.NONE: "None has been made yet. Its place in line isn’t affected.",
}
MOVED = {
    "slots": "places were added or lost",
    "paused": "something was paused or goes on",
    "limits": "a limit changed",
    "level": "the pressure changed",
}


def why(seen: Seen) -> Answer | None:
    """Return what holds it, and what would free it; None where that is said elsewhere or doesn't matter any more."""
    match seen.state:
        case State.SUCCEEDED:
            return None
        case State.CANCELLED:
            return Answer(_reason_given(seen) or "No reason was given")
        case State.FAILED_TERMINAL:
            message = str((seen.task.error or {}).get("message") or "") if isinstance(seen.task.error, dict) else ""
            return Answer(_cut(message) or "No message was left", (_attempts(seen),))
        case State.RUNNING if seen.task.want:
            wish = seen.last("wish")
            by = f" by {words.person(wish.actor)}" if wish is not None else ""
            reason = said(wish, "reason")
            return Answer(f"Asked for{by}" + (f": “{reason}”" if reason else ""), (AT_CHECKPOINT,))
        case State.RUNNING:
            waited = seen.why.waited_s
            below = [f"It waited {lasted(waited)} before."] if waited >= 1 else []
            return Answer("Nothing holds it up", below)
        case State.WAITING_APPROVAL if seen.undecided:
            return Answer("It asks a person before it goes on", ("It holds no slot while it waits.",))
        case _ if seen.why.bound:
            first, *others = seen.why.bound
            said_first = first.told.words.replace(" by staff:", " by ")
            below = [first.told.frees] if first.told.frees else []
            below += [f"Also: {other.told.words}" for other in others]
            return Answer(said_first.rstrip(".") if len(said_first) < NOTE_MOST_CHARS else said_first, below)
        case _:
            return Answer("Nothing holds it")


AT_CHECKPOINT = "It stops at its next checkpoint: between two steps or calls. Finished steps are kept."


def error_class(seen: Seen) -> str | None:
    """Return the class of what it failed of."""
    error = seen.task.error
    return str(error.get("class") or "") or None if isinstance(error, dict) else None


def title(seen: Seen) -> str:
    """Return the page's title: the state and the range, then the name."""
    eta = seen.eta
    span = None if eta is None or seen.over else (eta.end if seen.state is State.RUNNING else eta.start)
    at = f", {clock(span.p50, seen.now)}" if span is not None else ""
    said = words.standing(seen.state, parked=seen.task.holds == [CHILDREN])
    return f"{said.capitalize()}{at} · {seen.name[:60]}"


def _queued(seen: Seen) -> str:
    task, now = seen.task, seen.now
    if task.released:
        return "starting now"
    code = seen.why.bound[0].reason.code if seen.why.bound else None
    if task.depends:
        left = (seen.why.bound[0].reason.facts or {}).get("left") if seen.why.bound else None
        return f"waiting for {words.counted(left, 'task') if isinstance(left, int) and left else 'tasks'} before it"
    if code == Code.POSTPONED and task.not_before:
        return f"sent back until {clock(task.not_before, now)}"
    if task.deferred:
        return "put off, it keeps its place"
    if task.not_before is not None and task.not_before > now and not task.ready:
        return f"planned for {clock(task.not_before, now)}"
    ahead = seen.why.ahead
    if ahead > AHEAD_MOST:
        return f"more than {AHEAD_MOST:,} of your own before it"
    return "next in your line" if ahead == 0 else f"{ordinal(ahead + 1)} in your line"


def ordinal(n: int) -> str:
    """Return a place.

    >>> [ordinal(n) for n in (1, 2, 3, 4, 11, 22, 113)]
    ['1st', '2nd', '3rd', '4th', '11th', '22nd', '113th']
    """
    ending = "th" if n % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n:,}{ending}"


def _paused(seen: Seen, since: str) -> str:
    holds = seen.task.holds
    people = [one for one in (TENANT, OPERATOR) if one in holds]
    if people:
        event = seen.last("pause", "halt")
        who = _holder(seen) if event is not None else ""
        also = " and for its children" if CHILDREN in holds else ""
        return f"Paused{who} since {since}{also}"
    if CHILDREN in holds:
        facts = seen.why.bound[0].reason.facts or {} if seen.why.bound else {}
        left, total = facts.get("left"), facts.get("total")
        if isinstance(left, int) and isinstance(total, int):
            return f"Waiting for {words.counted(total, 'child', 'children')}, {total - left:,} ended"
        return "Waiting for " + (
            words.counted(left, "child", "children") if isinstance(left, int) and left else "its children"
        )
    if APPROVAL_TIMEOUT in holds:
        return "Paused: nobody decided in time"
    if VERSION in holds:
        return "Paused: no worker knows this version of its kind"
    return f"Paused since {since}"


def _holder(seen: Seen) -> str:
    for bound in seen.why.bound:
        author = (bound.reason.facts or {}).get("author")
        if bound.reason.code == Code.HELD and author:
            return f" by {words.person(str(author))}"
    return ""


def _goes_on(seen: Seen) -> str:
    holds = seen.task.holds
    if TENANT in holds:
        return "It goes on when it is resumed"
    if OPERATOR in holds:
        return "It goes on when an operator resumes it"
    if CHILDREN in holds:
        return "It goes on when they have ended"
    if APPROVAL_TIMEOUT in holds:
        return "It goes on when it is asked again and answered"
    return "It goes on by itself when a worker comes that knows it"


def _after_decision(seen: Seen) -> Answer:
    asked = seen.question
    below = []
    if asked is not None and asked.deadline is not None:
        then = "cancelled" if asked.on_timeout == "cancel" else "paused"
        below.append(f"Without an answer by {clock(asked.deadline, seen.now)} it is {then}, never approved.")
    return Answer("After the decision, as soon as a slot is free", below)


def _ended(seen: Seen) -> Answer:
    task = seen.task
    took_s = ((task.finished_at or seen.now) - task.created_at).total_seconds()
    waited_s = seen.why.waited_s
    waiting = f", of these {lasted(waited_s)} waiting" if waited_s >= 1 and seen.why.whole else ""
    match seen.state:
        case State.SUCCEEDED:
            return Answer(f"Took {lasted(took_s)}{waiting}")
        case State.FAILED_TERMINAL:
            at = clock(task.finished_at or seen.now, seen.now)
            return Answer(f"Failed at {at}, after {lasted(took_s)}")
        case _:
            done = sum(one.finished_at is not None for one in seen.steps)
            kept = (f"{words.counted(done, 'finished step')} {'is' if done == 1 else 'are'} kept.",) if done else ()
            return Answer(f"After {lasted(took_s)}", kept)


def _ranges(seen: Seen, span: Span) -> str:
    text = length(span.p50, span.p90, seen.now)
    known = f"{text[:1].upper()}{text[1:]}."
    made = seen.made
    covers = made.calibration.get("p90_covers") if made is not None else None
    n = made.calibration.get("n", 0) if made is not None else 0
    if made is None or not isinstance(covers, int | float) or n < BORNE_LEAST:
        return f"{known} As likely before the first time as after; nine times in ten before the second."
    wider = " It is wider than usual, because many came late." if made.trust is Trust.WIDENED else ""
    return f"{known} Such a range held {round(100 * covers)} times in 100.{wider}"


def _attempts(seen: Seen) -> str:
    tried = max(1, seen.task.attempts_used)
    return f"It was tried {'once' if tried == 1 else f'{tried} times'}."


def _by(seen: Seen) -> str:
    event = seen.last("cancel", "wish", "deny", "approval_timeout")
    if event is None or event.event == "approval_timeout":
        return ", as nobody decided," if event is not None else ""
    return f" by {words.person(event.actor)}"


def _reason_given(seen: Seen) -> str:
    event = seen.last("cancel", "abort", "deny", "wish")
    reason = said(event, "reason") or said(seen.last("wish"), "reason")
    return f"“{_cut(reason)}”" if reason else ""


def _step_name(name: str) -> str:
    return name.replace("_", " ").replace("-", " ")


def _cut(text: str) -> str:
    return text if len(text) <= NOTE_MOST_CHARS else f"{text[: NOTE_MOST_CHARS - 1]}…"


def _lower(text: str) -> str:
    return f"{text[:1].lower()}{text[1:]}"


def _until_s(at: datetime, now: datetime) -> float:
    return (at - now).total_seconds()
