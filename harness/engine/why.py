"""Why is this task waiting, since when, what would free it, and what has it waited for? For API, admin and command.

A task that is ready is bound by what binds its flow, as the leading dispatcher notes it (engine.reasons); one that
isn't answers from its own row and trace. Nothing is added up here: the time per reason is a difference of sums that
stand in the notes, two look-ups a wait. Reads only; under role `web` it sees its tenant's rows alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from harness.policy import holds, waits
from harness.policy.errors import NotFound
from harness.policy.heads import LOST_STARTS_QUARANTINE
from harness.policy.lifecycle import TERMINAL, Event, State
from harness.policy.reasons import AHEAD_MOST, Code, Fact, Reason, Told, Who, label, told
from harness.policy.settings import QUARANTINE
from harness.policy.waits import Happened, Wait
from harness.store import children, reasons
from harness.store.children import Waits
from harness.store.database import Connection
from harness.store.queries import TaskView
from harness.store.reasons import EventTold, InLine

EVENTS_MOST = 500  # of a task's trace, the newest: what it waited before is left out
LINES_MOST = 50  # waits in line whose reasons are looked up, the newest

_DECIDED = (Event.APPROVE, Event.DENY)
_HOLDS = {
    holds.CHILDREN: Code.CHILDREN,
    holds.VERSION: Code.VERSION,
    holds.APPROVAL_TIMEOUT: Code.UNANSWERED,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Bound:
    """A reason with its words. `since`: when it began to hold the task or, before that, all of its flow."""

    reason: Reason
    told: Told
    since: datetime | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Spent:
    """Time that a reason took."""

    code: Code
    subject: str
    label: str
    who: Who
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Why:
    """The answer. `bound`: what holds it now, the binding reason first (none: it doesn't wait).

    `waits_since`: when it began to wait; `ahead`: its flow's tasks before it, of its own tenant (`AHEAD_MOST` + 1:
    more); `spent`: time per reason since it was last sent, longest first; `whole`: nothing older was left out of that.
    """

    bound: Sequence[Bound]
    waits_since: datetime | None
    ahead: int
    spent: Sequence[Spent]
    waited_s: float
    whole: bool


def why(connection: Connection, task: TaskView, *, now: datetime | None = None) -> Why:
    """Return why a task waits, and what it has waited for. `now`: of the database, unless given. Raises: NotFound."""
    line = reasons.in_line(connection, task.id, most=AHEAD_MOST)
    if line is None:
        raise NotFound(f"there is no task {task.public_id}")
    events = reasons.last_events(connection, task.id, most=EVENTS_MOST)
    now = datetime.fromtimestamp(line.now_s, UTC) if now is None else now
    of_others = children.waits(connection, task.id) if _waits_for_others(task) else None
    found = sorted(_reasons(task, events, line, of_others), key=lambda one: one[0].rank)
    waited, whole = _waits(task, events, now=now)
    spent = _spent(connection, task.id, waited)
    current = waited[-1] if waited and found and waited[-1].to_s == now.timestamp() else None
    return Why(
        bound=[
            Bound(reason=reason, told=_told(reason, task, events, now), since=_moment(since_s))
            for reason, since_s in found
        ],
        waits_since=None if current is None else _moment(_began_s(waited)),
        ahead=line.ahead,
        spent=spent,
        waited_s=sum(one.seconds for one in spent),
        whole=whole,
    )


def said_at(at_s: float, now: datetime) -> str:
    """Return a moment in words, in UTC; with its day when that is another one.

    >>> said_at(0.0, datetime(1970, 1, 1, 5, tzinfo=UTC)), said_at(0.0, datetime(1970, 1, 2, tzinfo=UTC))
    ('00:00 UTC', '00:00 UTC on 1 Jan')
    """
    moment = datetime.fromtimestamp(at_s, UTC)
    said = f"{moment:%H:%M} UTC"
    if moment.date() != now.astimezone(UTC).date():
        said += f" on {moment.day} {moment:%b}" + ("" if moment.year == now.year else f" {moment.year}")
    return said


def _waits_for_others(task: TaskView) -> bool:
    return task.depends or holds.CHILDREN in task.holds


def _told(reason: Reason, task: TaskView, events: Sequence[EventTold], now: datetime) -> Told:
    """A reason in words; of what somebody has decided, that first."""
    said = told(reason, lambda at_s: said_at(at_s, now))
    if task.state != State.WAITING_APPROVAL or reason.code == Code.APPROVAL:
        return said
    denied = next((e for e in reversed(events) if e.event in _DECIDED), None)
    what = "Denied, which its kind wants to know" if denied is not None and denied.event == Event.DENY else "Approved"
    return Told(f"{what}, waiting for a slot. {said.words}", said.frees)


def _reasons(
    task: TaskView, events: Sequence[EventTold], line: InLine, of_others: Waits | None
) -> list[tuple[Reason, float | None]]:
    """What holds the task now, each with since when."""
    if task.state in TERMINAL or task.state == State.RUNNING:
        return []
    last_s = events[-1].at_s if events else task.created_at.timestamp()
    if task.released:
        return [(Reason(Code.STARTING), last_s)]
    if task.ready:
        return [_in_line(task, line, last_s)]
    until_s = None if task.not_before is None else task.not_before.timestamp()
    if of_others is not None and task.depends:
        facts: dict[str, Fact | None] = {"left": of_others.dependencies, "failed": of_others.failed}
        return [(Reason(Code.DEPENDENCIES, "", facts), last_s)]
    match State(task.state):
        case State.PAUSED:
            return [_hold(hold, events, of_others) for hold in task.holds] or [(Reason(Code.HELD), last_s)]
        case State.WAITING_APPROVAL:
            return [_asked(events, last_s)]
        case State.FAILED_RETRYABLE:
            return [(Reason(Code.RETRY, "", {"until_s": until_s} | _said(events, Event.FAIL)), last_s)]
        case _:
            postponed = next((e for e in reversed(events) if e.event != Event.REPRIORITISE), None)
            if postponed is not None and postponed.event == Event.POSTPONE:
                return [
                    (Reason(Code.POSTPONED, "", {"until_s": until_s} | _said(events, Event.POSTPONE)), postponed.at_s)
                ]
            if task.deferred:
                submitted = next((e for e in events if e.event == Event.SUBMIT), None)
                reason = None if submitted is None else _of(submitted, "deferred") or None
                return [(Reason(Code.DEFERRED, "", {"until_s": until_s, "reason": reason}), last_s)]
            return [(Reason(Code.NOT_BEFORE, "", {"until_s": until_s}), last_s)]


def _in_line(task: TaskView, line: InLine, last_s: float) -> tuple[Reason, float | None]:
    """What binds a ready task: its flow's reason or, where that is only the turn, what is true of this task alone."""
    if line.leaderless_s is not None:
        since_s = line.leaderless_s or None
        return Reason(Code.NO_DISPATCHER, "", {"since_s": since_s}), since_s
    if line.reason is not None and line.reason.code != Code.TURN:
        return line.reason, line.since_s
    since_s = last_s if line.since_s is None else line.since_s
    others = max(0, (line.tenants or 0) - 1)
    if line.lost_starts >= LOST_STARTS_QUARANTINE and not line.quarantine_free:
        slots = line.quarantine_slots
        return Reason(Code.QUARANTINE, QUARANTINE, {"lost": line.lost_starts, "slots": slots}), last_s
    facts: dict[str, Fact | None] = {"pool": task.pool, "slots": line.slots, "others": others}
    if line.ahead:
        facts |= {"ahead": min(line.ahead, AHEAD_MOST), "beyond": "More than" if line.ahead > AHEAD_MOST else ""}
        return Reason(Code.OWN_LINE, "", facts), last_s
    return Reason(Code.TURN, "", facts), since_s


def _asked(events: Sequence[EventTold], last_s: float) -> tuple[Reason, float]:
    """What it asks, since when, and until when it waits for the answer."""
    first = next((e for e in reversed(events) if e.event == Event.ASK), None)
    since_s = next((e.at_s for e in reversed(events) if e.event in (Event.ASK, Event.REASK)), last_s)
    facts: dict[str, Fact | None] = {"since_s": since_s}
    if first is not None and isinstance(first.data, Mapping):
        facts["reason"] = _of(first, "prompt") or None
        timeout_s = first.data.get("timeout_s")
        facts["until_s"] = since_s + timeout_s if isinstance(timeout_s, int | float) else None
    return Reason(Code.APPROVAL, "", facts), since_s


def _hold(hold: str, events: Sequence[EventTold], of_others: Waits | None) -> tuple[Reason, float | None]:
    """A hold of a paused task, with who set it and why, where the trace tells."""
    if hold in _HOLDS:
        (event,) = (name for name, code in waits.HOLDS.items() if code == _HOLDS[hold])
        since_s = next((e.at_s for e in reversed(events) if e.event == event), None)
        if hold == holds.CHILDREN:
            return Reason(Code.CHILDREN, "", _children(of_others)), since_s
        return Reason(_HOLDS[hold], "", {"since_s": since_s} | _said(events, event)), since_s
    set_it = next((e for e in reversed(events) if e.event in (Event.PAUSE, "wish") and _of(e, "hold") == hold), None)
    halted_s = next((e.at_s for e in reversed(events) if e.event == Event.HALT), None)
    if set_it is None:
        return Reason(Code.HELD, hold, {"source": hold, "since_s": halted_s}), halted_s
    since_s = set_it.at_s if set_it.event == Event.PAUSE else halted_s
    facts: dict[str, Fact | None] = {
        "source": hold,
        "author": set_it.actor,
        "reason": _of(set_it, "reason"),
        "since_s": since_s,
    }
    return Reason(Code.HELD, hold, facts), since_s


def _children(of_others: Waits | None) -> dict[str, Fact | None]:
    if of_others is None or of_others.total is None:
        return {"left": 0}
    some = of_others.need is not None and of_others.need < of_others.total
    total = of_others.total if of_others.children < of_others.total else None
    return {"left": of_others.children, "total": total, "need": of_others.need if some else None}


def _said(events: Sequence[EventTold], event: str) -> dict[str, Fact | None]:
    """What the newest event of a kind gave as its reason."""
    found = next((e for e in reversed(events) if e.event == event), None)
    return {"reason": _of(found, "reason").rstrip(".") or None} if found is not None else {}


def _of(event: EventTold, name: str) -> str:
    return str(event.data.get(name) or "") if isinstance(event.data, Mapping) else ""


def _waits(task: TaskView, events: Sequence[EventTold], *, now: datetime) -> tuple[list[Wait], bool]:
    """What it has waited since it was last sent, and whether that is all of it."""
    happened = [
        Happened(
            at_s=event.at_s,
            event=event.event,
            to_state=event.to_state,
            from_priority=_priority(event) if event.event == Event.REPRIORITISE else None,
            deferred=event.event == Event.SUBMIT and bool(_of(event, "deferred")),
            depended=event.event == Event.RIPEN and bool(_of(event, "dependencies")),
        )
        for event in events
    ]
    found = waits.of_trace(
        happened,
        now_s=now.timestamp(),
        priority=task.priority,
        planned=task.state == State.QUEUED and task.not_before is not None,
        depends=task.depends,
    )
    begun_here = not events or events[0].event == Event.SUBMIT or any(e.event == Event.REDRIVE for e in events)
    return found, begun_here and sum(wait.code is None for wait in found) <= LINES_MOST


def _priority(event: EventTold) -> int | None:
    value = event.data.get("from") if isinstance(event.data, Mapping) else None
    return value if isinstance(value, int) else None


def _spent(connection: Connection, task: int, waited: Sequence[Wait]) -> list[Spent]:
    lines = [wait for wait in waited if wait.code is None][-LINES_MOST:]
    noted: dict[Wait, Mapping[str, float]] = {}
    if lines:
        moments = [(wait.priority, at_s) for wait in lines for at_s in (wait.from_s, wait.to_s)]
        notes = reasons.notes_at(connection, task, moments)
        noted = {
            wait: waits.between(notes[2 * at], notes[2 * at + 1], wait.from_s, wait.to_s)
            for at, wait in enumerate(lines)
        }
    counted = [(wait, noted.get(wait, {})) for wait in waited if wait.code is not None or wait in noted]
    return [
        Spent(code=code, subject=subject, label=label(code, subject), who=Reason(code).who, seconds=seconds)
        for (code, subject), seconds in waits.add_up(counted).items()
    ]


def _began_s(waited: Sequence[Wait]) -> float:
    """When the wait that still lasts began: waits that follow each other without a gap are one."""
    began_s = waited[-1].from_s
    for wait in reversed(waited[:-1]):
        if wait.to_s != began_s:
            break
        began_s = wait.from_s
    return began_s


def _moment(at_s: float | None) -> datetime | None:
    return None if at_s is None else datetime.fromtimestamp(at_s, UTC)
