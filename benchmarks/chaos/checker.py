"""Says of a history what must not be in it. Pure: a history in, findings out; each rule is one function.

What is believed: the clients' answers, the receiver's log, the trace against the lifecycle table, leases as sampled.

* lost                 accepted, but not there; not ended although nothing holds it; succeeded without all its effects
* duplicated_effects   two tokens for one piece of work; an execution or an effect that the trace knows no claim for;
                       two executions under one claim; two tokens for one effect of a step, one token for two effects,
                       a step that began again after it had finished. The same token again is legal: work is done at
                       least once, and a receiver can tell by the token. An effect counts when it was begun (after the
                       fence check): what was under way when its process was stopped may come in late.
* illegal_transitions  an event, or a change of state, that policy.lifecycle.TABLE doesn't have; a gap in the trace
* caps_exceeded        slots of pools; caps of tenants, quotas, runs and resources: in every sample of leases, and at
                       every instant of the receiver's log; zombies count
* leaked_leases        rows of leases a minute after the last task ended
* children_doubled     two children for one place in a spawn, or one that no finished step made (families)
* children_wrong       a parent wasn't told of each child once, the same at each attempt, and what it came to
* approvals_wrong      decided twice or by nobody, or a task was told another choice than was made (decisions)
* stream_gaps          an event of a stream that is missing, came twice or isn't in the trace; no end (streams)
* leases_while_waiting a task on a lease while it is parked, paused or undecided (waiting)
* dependencies_wrong   a node that ran before what it depends on had succeeded
"""

from collections import Counter, defaultdict
from collections.abc import Iterator

from benchmarks.chaos import caps, decisions, families, stepwise, streams, waiting
from benchmarks.chaos.history import Finding, History, TaskRow, TraceEvent
from benchmarks.chaos.view import View, token, view
from harness.policy import steps
from harness.policy.lifecycle import TABLE, TERMINAL, Event, State

COLUMNS = (
    "lost",
    "duplicated_effects",
    "illegal_transitions",
    "caps_exceeded",
    "leaked_leases",
    "children_doubled",
    "children_wrong",
    "approvals_wrong",
    "stream_gaps",
    "leases_while_waiting",
    "dependencies_wrong",
)
WISH = "wish"  # in the trace, but no change of state: what someone wants of a running task
LATER_S = 3600.0  # due so late that waiting is what was asked for


def check(history: History) -> list[Finding]:
    """Return everything that is wrong."""
    seen = view(history)
    rules = (
        lost,
        tokens,
        executions,
        effects,
        *stepwise.RULES,
        *families.RULES,
        *decisions.RULES,
        *streams.RULES,
        *waiting.RULES,
        transitions,
        caps.by_lease,
        caps.by_visit,
        provider,
        leaks,
    )
    return [finding for rule in rules for finding in rule(seen)]


def lost(seen: View) -> Iterator[Finding]:
    """Accepted work ended or waits legitimately; what succeeded had all its effects."""
    for task in dict.fromkeys(one.task for one in seen.history.accepted):
        if token(task) not in seen.rows:
            yield Finding(column="lost", subject=task, what="was accepted, and isn't there")
    came = {(effect.token, effect.n) for effect in seen.history.effects}
    for name, row in seen.rows.items():
        if row.state not in TERMINAL and not _waits(row):
            yield Finding(column="lost", subject=row.task, what=f"is {row.state}, and nothing holds it")
        missing = [n for n in range(row.effects) if (name, n) not in came]
        if row.state == State.SUCCEEDED and missing:
            yield Finding(column="lost", subject=row.task, what=f"succeeded without its effects {missing}")


def tokens(seen: View) -> Iterator[Finding]:
    """Each piece of work, however often it was sent, is one task under one token."""
    made = defaultdict(set)
    for accepted in seen.history.accepted:
        made[accepted.i].add(token(accepted.task))
    for visit in seen.history.visits:
        made[visit.i].add(visit.token)
    for i, found in made.items():
        if len(found) > 1:
            what = f"is there under {len(found)} tokens: {', '.join(sorted(found))}"
            yield Finding(column="duplicated_effects", subject=f"work {i}", what=what)


def executions(seen: View) -> Iterator[Finding]:
    """Each execution goes with a claim, and each claim with one execution at most."""
    under: Counter[tuple[str, float]] = Counter()
    for visit in seen.history.visits:
        claims = [span for span in seen.spans.get(visit.token, ()) if span.holds(visit.began_s)]
        if not claims:
            what = f"was executed by {visit.pid} from {visit.began_s:.3f}, when it didn't run"
            yield Finding(column="duplicated_effects", subject=visit.token, what=what)
            continue
        claim = (visit.token, claims[-1].began_s)
        under[claim] += 1
        if under[claim] > 1:
            what = f"was executed {under[claim]} times under its claim of {claims[-1].began_s:.3f}"
            yield Finding(column="duplicated_effects", subject=visit.token, what=what)


def effects(seen: View) -> Iterator[Finding]:
    """No effect is begun while its task doesn't run: not before a claim, not after it was taken back."""
    for effect in seen.history.effects:
        if not any(span.holds(effect.sent_s) for span in seen.spans.get(effect.token, ())):
            what = f"effect {effect.n} was begun at {effect.sent_s:.3f} by {effect.pid}, when it didn't run"
            yield Finding(column="duplicated_effects", subject=effect.token, what=what)


def transitions(seen: View) -> Iterator[Finding]:
    """Each trace begins with submit, has no gap, follows the table, and ends where the task stands."""
    for row in seen.rows.values():
        trace = seen.traces.get(row.id, ())
        state: str | None = None
        for number, event in enumerate(trace, start=1):
            if wrong := _wrong(event, state, number):
                yield Finding(column="illegal_transitions", subject=row.task, what=wrong)
            state = event.target
        if (state, len(trace)) != (row.state, row.event_no):
            what = f"is {row.state} after {row.event_no} events, but its trace ends {state} after {len(trace)}"
            yield Finding(column="illegal_transitions", subject=row.task, what=what)


def provider(seen: View) -> Iterator[Finding]:
    """The provider was called once an attempt at most, from the slots there are, and for each task that succeeded."""
    found = seen.history.provider
    if found is None:
        return
    if found.calls > found.attempts:
        what = f"{found.calls} calls came from {found.attempts} attempts"
        yield Finding(column="duplicated_effects", subject="provider", what=what)
    if found.answered < found.succeeded or found.calls != found.ends + found.in_flight:
        what = f"answered {found.answered} of {found.succeeded} that succeeded; {found.calls} calls, {found.ends} ends"
        yield Finding(column="lost", subject="provider", what=what)
    if found.in_flight_max > found.slots:
        what = f"{found.in_flight_max} calls at a time, from {found.slots} slots"
        yield Finding(column="caps_exceeded", subject="provider", what=what)


def leaks(seen: View) -> Iterator[Finding]:
    """Nothing holds a slot when nothing runs."""
    for n in range(seen.history.leases_left):
        yield Finding(column="leaked_leases", subject=f"lease row {n + 1}", what="was left a minute after the end")


def _waits(row: TaskRow) -> bool:
    if row.leased:
        return False
    return (row.state == State.PAUSED and bool(row.holds)) or (row.due_in_s or 0.0) > LATER_S


def _wrong(event: TraceEvent, state: str | None, number: int) -> str | None:
    if event.seq != number:
        return f"event {number} of its trace has the number {event.seq}"
    if event.source != state:
        return f"{event.event} (number {number}) says it was {event.source}, but it was {state}"
    if event.event == WISH or event.event in steps.EVENTS:
        legal = event.source == event.target == State.RUNNING
    else:
        row = TABLE[Event(event.event)] if event.event in set(Event) else None
        legal = row is not None and (event.source, event.target) in row.arcs
    return None if legal else f"{event.event} (number {number}) led from {event.source} to {event.target}"
