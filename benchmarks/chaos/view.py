"""A history, indexed for the rules: each task's trace, when it ran by that trace, and where its tasks are by token."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from benchmarks.chaos.history import History, TaskRow, TraceEvent, Visit
from harness.policy.lifecycle import Event, State
from harness.policy.steps import EVENTS as STEP_EVENTS
from harness.store.sessions import FENCE_AFTER_S

CLOCK_S = 0.005  # an event's time is taken in the database, an effect's in the worker: the order of a few ms is open
PASSING = frozenset({"wish", Event.REPRIORITISE, *STEP_EVENTS})  # it stands where it stood before
EXIT_S = 2.0  # a process that has handed back what it ran has this long to be gone


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """One time that a task was running, by its trace. `ended_by`: the event that ended it; None: it still runs."""

    began_s: float
    ended_s: float
    ended_by: str | None

    def holds(self, at_s: float) -> bool:
        """Whether a moment lies in it."""
        return self.began_s - CLOCK_S <= at_s <= self.ended_s + CLOCK_S


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """An indexed history. `traces` and `by_id` are by task id, `spans` and `rows` by token."""

    history: History
    traces: Mapping[int, Sequence[TraceEvent]]
    spans: Mapping[str, Sequence[Span]]
    rows: Mapping[str, TaskRow]
    by_id: Mapping[int, TaskRow]

    def visits(self) -> list[Visit]:
        """Return the executions, each ended at the latest when it was over for Harness.

        That is when its process's fence closed during a SIGSTOP, or when its process handed it back and was gone
        within EXIT_S. A thread that was given up (a zombie) counts for as long as it really lasted.
        """
        fences = defaultdict(list)
        for fault in self.history.faults:
            if fault.what == "stop" and fault.until_s is not None and fault.until_s - fault.at_s >= FENCE_AFTER_S:
                fences[fault.pid].append(fault.at_s + FENCE_AFTER_S)
        found = []
        for visit in self.history.visits:
            ends = [visit.ended_s, *(at_s for at_s in fences[visit.pid] if at_s >= visit.began_s)]
            for span in self.spans.get(visit.token, ()):
                if span.holds(visit.began_s) and span.ended_by == Event.INTERRUPT:
                    ends += [span.ended_s] if span.ended_s >= visit.ended_s - EXIT_S else []
            found.append(replace(visit, ended_s=min(ends)))
        return found


def view(history: History) -> View:
    """Index a history."""
    traces = defaultdict(list)
    for event in history.trace:
        traces[event.id].append(event)
    rows = {token(row.task): row for row in history.tasks}
    spans = {name: tuple(_spans(traces[row.id], history.ended_s)) for name, row in rows.items()}
    by_id = {row.id: row for row in history.tasks}
    return View(history=history, traces=traces, spans=spans, rows=rows, by_id=by_id)


def token(task: str) -> str:
    """Return the token under which a task does its effects (`Context.token`)."""
    return f"harness-{task}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Recovery:
    """One task that was lost with a killed process: how long it took until it was given up, and claimed again.

    `losses`: how often it had been lost by then; after two it waits for a slot of the quarantine. `paused`: whether
    pressure paused its queue meanwhile, so that it waited for that, too.
    """

    role: str
    task: str
    kind: str
    lost_s: float
    claimed_s: float
    losses: int
    paused: bool


def recoveries(seen: View) -> list[Recovery]:
    """Return the tasks that killed processes took along, by the seconds from the kill to their next claim.

    What a process held is read from the last sample of leases before the kill. A task that someone paused before that
    claim isn't among them.
    """
    rows = {row.id: row for row in seen.history.tasks}
    found = []
    for fault in seen.history.faults:
        if fault.what != "kill" and not (fault.what == "sabotage" and fault.role.endswith(".exit")):
            continue
        before = [sample for sample in seen.history.samples if sample.at_s <= fault.at_s]
        for lease in before[-1].leases if before and fault.at_s - before[-1].at_s < 1.0 else ():
            if not lease.claimed or lease.pid not in (fault.pid, *fault.family):
                continue
            for task in lease.tasks:
                trace = seen.traces[task]
                given_up, again = _again(trace, fault.at_s)
                if given_up and again:
                    found.append(
                        Recovery(
                            role=fault.role,
                            task=rows[task].task,
                            kind=rows[task].kind,
                            lost_s=round(given_up.at_s - fault.at_s, 2),
                            claimed_s=round(again.at_s - fault.at_s, 2),
                            losses=sum(event.event == Event.LOSE and event.at_s <= again.at_s for event in trace),
                            paused=any(
                                f"{rows[task].pool}.p{rows[task].priority}" in sample.paused
                                for sample in seen.history.samples
                                if given_up.at_s <= sample.at_s <= again.at_s
                            ),
                        )
                    )
    return sorted(found, key=lambda one: one.claimed_s)


def _again(trace: Sequence[TraceEvent], killed_s: float) -> tuple[TraceEvent | None, TraceEvent | None]:
    """Return how a task was given up after a kill, if that was the first thing, and its next claim if it followed."""
    later = [event for event in trace if event.at_s > killed_s and event.event not in PASSING]
    if len(later) < 2 or later[0].event not in (Event.LOSE, Event.INTERRUPT) or later[1].event != Event.CLAIM:
        return None, None
    return later[0], later[1]


def _spans(trace: Sequence[TraceEvent], ended_s: float) -> Iterator[Span]:
    since_s: float | None = None
    for event in trace:
        if event.target == State.RUNNING and event.source != State.RUNNING:
            since_s = event.at_s
        elif event.source == State.RUNNING and event.target != State.RUNNING and since_s is not None:
            yield Span(began_s=since_s, ended_s=event.at_s, ended_by=event.event)
            since_s = None
    if since_s is not None:
        yield Span(began_s=since_s, ended_s=ended_s, ended_by=None)
