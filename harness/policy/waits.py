"""What a task has waited for, from its trace and from the notes on its flow. Pure.

A task waits in its line (it is ready: then its flow's reasons are its own) or outside of it, for a reason of its own
that the trace tells: a hold, a back-off, a decision, its time. Each moment counts once.

A note tells of one flow from `since_s` on: which reason, and the sums of all that came before it on that flow. So the
time per reason between two moments is a difference of two sums, however many reasons came in between.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from harness.policy.lifecycle import Event, State
from harness.policy.reasons import Code

LAG_S = 3.0  # a wait that nobody noted is its turn if it is shorter: the dispatcher looks once a second
Sums = Mapping[str, float]  # "code:subject" -> seconds

_OWN = {
    State.WAITING_APPROVAL: Code.APPROVAL,
    State.PAUSED: Code.HELD,
    State.FAILED_RETRYABLE: Code.RETRY,
}
HOLDS = {
    Event.PARK: Code.CHILDREN,
    Event.MISMATCH: Code.VERSION,
    Event.APPROVAL_TIMEOUT: Code.UNANSWERED,
}
_DECIDED = (Event.APPROVE, Event.DENY, Event.RIPEN)


@dataclass(frozen=True, kw_only=True, slots=True)
class Happened:
    """A trace event. `from_priority`: of a reprioritise; `deferred`: of a submit, by the door.

    `depended`: of a ripen, because what it depended on had succeeded.
    """

    at_s: float
    event: str
    to_state: str
    from_priority: int | None = None
    deferred: bool = False
    depended: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Wait:
    """A time in which the task waited. `code` None: in its line, with this priority."""

    from_s: float
    to_s: float
    code: Code | None
    priority: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Note:
    """The note on a flow that a moment falls to (the last that began before it, else the first one after it)."""

    key: str
    since_s: float
    until_s: float | None
    before: Sums = field(default_factory=dict)


def of_trace(
    events: Sequence[Happened], *, now_s: float, priority: int, planned: bool, depends: bool = False
) -> list[Wait]:
    """Return what a task has waited, in order, since it was last sent (anew). `events`: in order of seq.

    `priority`: its priority now; `planned`: it isn't ready now, because its time has yet to come; `depends`:
    because others have yet to succeed.
    """
    starts = [at for at, event in enumerate(events) if event.event == Event.REDRIVE]
    events = events[starts[-1] :] if starts else events
    priorities = _priorities(events, priority)
    waits: list[Wait] = []
    for place, event in enumerate(events):
        following = events[place + 1] if place + 1 < len(events) else None
        until_s = now_s if following is None else following.at_s
        waiting, code = _waits_for(events, place, planned=planned, depends=depends)
        if waiting and until_s > event.at_s:
            waits.append(Wait(from_s=event.at_s, to_s=until_s, code=code, priority=priorities[place]))
    return waits


def between(begin: Note | None, end: Note | None, from_s: float, to_s: float) -> dict[str, float]:
    """Return the seconds by reason ("code:subject") that a flow spent between two moments, from the notes on them.

    >>> one = Note(key="turn:", since_s=10, until_s=None, before={"tenant_cap:": 4.0})
    >>> between(one, one, 12, 15)
    {'turn:': 3.0}
    >>> first = Note(key="tenant_cap:", since_s=5, until_s=9)
    >>> between(first, one, 6, 12)
    {'tenant_cap:': 3.0, 'turn:': 2.0}
    """
    at_end, at_begin = _sums(end, to_s), _sums(begin, from_s)
    spent = {key: seconds - at_begin.get(key, 0.0) for key, seconds in at_end.items()}
    return {key: seconds for key, seconds in spent.items() if seconds > 0}


def add_up(waits: Sequence[tuple[Wait, Mapping[str, float]]]) -> dict[tuple[Code, str], float]:
    """Return the seconds by (code, subject) of waits, each with what its flow spent meanwhile; longest first.

    What nobody noted of a wait in line is its turn if it is short.
    """
    sums: dict[tuple[Code, str], float] = {}
    for wait, spent in waits:
        whole_s = wait.to_s - wait.from_s
        if wait.code is not None:
            sums[wait.code, ""] = sums.get((wait.code, ""), 0.0) + whole_s
            continue
        for key, seconds in spent.items():
            name, _, subject = key.partition(":")
            sums[Code(name), subject] = sums.get((Code(name), subject), 0.0) + seconds
        rest_s = whole_s - sum(spent.values())
        if rest_s > 0:
            rest = (Code.TURN if rest_s <= LAG_S else Code.UNNOTED, "")
            sums[rest] = sums.get(rest, 0.0) + rest_s
    return dict(sorted(sums.items(), key=lambda one: -one[1]))


def _sums(note: Note | None, at_s: float) -> dict[str, float]:
    if note is None:
        return {}
    sums = dict(note.before)
    end_s = at_s if note.until_s is None else min(at_s, note.until_s)
    if end_s > note.since_s:
        sums[note.key] = sums.get(note.key, 0.0) + end_s - note.since_s
    return sums


def _priorities(events: Sequence[Happened], now: int) -> list[int]:
    """The priority after each event, from the last one backwards."""
    found = []
    for event in reversed(events):
        found.append(now)
        if event.event == Event.REPRIORITISE and event.from_priority is not None:
            now = event.from_priority
    return found[::-1]


def _waits_for(events: Sequence[Happened], place: int, *, planned: bool, depends: bool) -> tuple[bool, Code | None]:
    """Whether the task waits after an event, and what for; None: in its line."""
    event = events[place]
    state = State(event.to_state)
    if state == State.QUEUED:
        return True, _outside(events, place, planned=planned, depends=depends)
    if state == State.WAITING_APPROVAL and event.event in _DECIDED:
        return True, None
    if state == State.PAUSED and event.event in HOLDS:
        return True, HOLDS[Event(event.event)]
    return state in _OWN, _OWN.get(state)


def _outside(events: Sequence[Happened], place: int, *, planned: bool, depends: bool) -> Code | None:
    """What a queued task waits for outside its line: that it wasn't ready shows when it ripens, or now."""
    begin = place
    while begin > 0 and events[begin].event == Event.REPRIORITISE:
        begin -= 1
    following = next((one for one in events[place + 1 :] if one.event != Event.REPRIORITISE), None)
    if depends if following is None else following.depended:
        return Code.DEPENDENCIES
    ripens = planned if following is None else following.event == Event.RIPEN
    if not ripens:
        return None
    if events[begin].event == Event.POSTPONE:
        return Code.POSTPONED
    # Of a resume nothing tells: what was deferred and then held waits for its time from there on.
    return Code.DEFERRED if events[begin].deferred else Code.NOT_BEFORE
