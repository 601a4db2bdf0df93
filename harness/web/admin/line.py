"""A task's line of states, from its trace: what stood how long, in words and as parts of a bar."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from harness.policy.holds import CHILDREN, wished
from harness.policy.lifecycle import TERMINAL, State
from harness.store.models import Task, TraceEvent
from harness.web.admin.marks import shown

MOST_ROWS = 12  # of a line of states as a table: what stood before is folded away, lest it hide steps and attempts
LEAST_PERCENT = 0.5  # a narrower part of the bar would not be seen: it joins its neighbour


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One state on the line. `x` and `width` are per cent of the bar; `until` None: it stands still."""

    state: str
    since: datetime
    until: datetime | None
    seconds: float
    x: float
    width: float


def line_of(events: Sequence[TraceEvent], now: datetime) -> list[Part]:
    """Return the states in order. `events`: by seq; those that change nothing are passed over."""
    stops: list[tuple[str, datetime]] = []
    for event in events:
        state = shown(event.to_state, event=event.event)
        if not stops or stops[-1][0] != state:
            stops.append((state, event.at))
    if not stops:
        return []
    ends = [at for _, at in stops[1:]]
    over = stops[-1][0] in TERMINAL
    ends.append(stops[-1][1] if over else max(now, stops[-1][1]))
    whole_s = max((ends[-1] - stops[0][1]).total_seconds(), 1e-6)
    parts = []
    for place, ((state, since), until) in enumerate(zip(stops, ends, strict=True)):
        seconds = max(0.0, (until - since).total_seconds())
        last = place == len(stops) - 1
        parts.append(
            Part(
                state=state,
                since=since,
                until=None if last else until,
                seconds=seconds,
                x=round(100 * (since - stops[0][1]).total_seconds() / whole_s, 2),
                width=round(100 * seconds / whole_s, 2),
            )
        )
    return parts


def bar_of(parts: Sequence[Part]) -> list[Part]:
    """Return what of a line is wide enough to be drawn."""
    return [part for part in parts if part.width >= LEAST_PERCENT]


def folded(rows: int) -> int:
    """Return how many of a line's rows, from its beginning, are folded away.

    >>> folded(3), folded(12), folded(13), folded(200)
    (0, 0, 3, 190)
    """
    return 0 if rows <= MOST_ROWS else rows - MOST_ROWS + 2


def duration(seconds: float) -> str:
    """Return a duration as people say it.

    >>> duration(0.0123), duration(4.2), duration(61), duration(7300), duration(200000)
    ('12 ms', '4.2 s', '1 min 1 s', '2 h 1 min', '2 d 7 h')
    >>> duration(0.0), duration(0.00002)
    ('0 ms', 'less than 1 ms')
    """
    if 0 < seconds < 0.001:
        return "less than 1 ms"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    for unit, size, below, part in (("min", 60, 3600, "s"), ("h", 3600, 86_400, "min"), ("d", 86_400, None, "h")):
        if below is None or whole < below:
            rest = whole % size // {"s": 1, "min": 60, "h": 3600}[part]
            return f"{whole // size} {unit} {rest} {part}" if rest else f"{whole // size} {unit}"
    raise AssertionError


def sentence(task: Task, events: Sequence[TraceEvent], *, released: bool, waiting: int | None = None) -> str:
    """Return a task's state as a sentence with its most useful fact in it. `waiting`: for so many children."""
    since = events[-1].at if events else task.created_at
    match State(task.state):
        case State.QUEUED if released:
            return "Queued: starting now"
        case State.QUEUED if task.not_before and task.deferred:
            return f"Deferred by admission: in line at {_at(task.not_before)} at the latest"
        case State.QUEUED if task.not_before:
            return f"Queued: planned for {_at(task.not_before)}"
        case State.QUEUED if not task.ready and task.depends:
            return f"Queued: waiting for what it depends on since {_at(since)}"
        case State.QUEUED:
            return f"Queued since {_at(since)}"
        case State.RUNNING if task.want:
            return f"Running: will {wished(task.want)} at its next checkpoint"
        case State.RUNNING:
            return f"Running since {_at(since)}"
        case State.WAITING_APPROVAL if released or task.ready:
            return f"Decided at {_at(since)}: waiting for a slot"
        case State.WAITING_APPROVAL:
            return f"Waiting for a decision since {_at(since)}"
        case State.PAUSED if task.holds == [CHILDREN]:
            n = waiting if waiting is not None else "its"
            return f"Waiting for {n} {'child' if waiting == 1 else 'children'} since {_at(since)}"
        case State.PAUSED:
            return f"Paused since {_at(since)}" + (f" ({', '.join(task.holds)})" if task.holds else "")
        case State.FAILED_RETRYABLE:
            when = f" at {_at(task.not_before)}" if task.not_before else ""
            return f"Trying again{when}, attempt {task.attempts_used + 1}"
        case State.SUCCEEDED:
            return f"Done at {_at(task.finished_at or since)}"
        case State.FAILED_TERMINAL:
            return f"Failed at {_at(task.finished_at or since)}"
        case State.CANCELLED:
            return f"Cancelled at {_at(task.finished_at or since)}"


def _at(moment: datetime) -> str:
    return f"{moment:%H:%M:%S} on {moment:%d %b %Y}"
