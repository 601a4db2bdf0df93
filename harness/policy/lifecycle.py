"""The task state machine as data: states, events, and the one table of what may follow what.

The table drives the WHERE of every compare-and-set (store.transitions), the trigger and CHECKs of the
database (store.models), docs/lifecycle.md, and the actions that API and admin offer. Names are wire values.
"""

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """Where a task stands. A released task is still `queued`; that it was released is its lease, not a state."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING_APPROVAL = "waiting_approval"
    PAUSED = "paused"
    FAILED_RETRYABLE = "failed_retryable"
    SUCCEEDED = "succeeded"
    FAILED_TERMINAL = "failed_terminal"
    CANCELLED = "cancelled"


class Event(StrEnum):
    """What can happen to a task; each is one kind of trace event."""

    SUBMIT = "submit"
    RIPEN = "ripen"
    REPRIORITISE = "reprioritise"
    CLAIM = "claim"
    ASK = "ask"
    APPROVE = "approve"
    DENY = "deny"
    APPROVAL_TIMEOUT = "approval_timeout"
    REASK = "reask"
    PAUSE = "pause"
    PARK = "park"
    UNPARK = "unpark"
    MISMATCH = "mismatch"
    RESUME = "resume"
    SUCCEED = "succeed"
    FAIL = "fail"
    LOSE = "lose"
    REQUEUE = "requeue"
    POSTPONE = "postpone"
    INTERRUPT = "interrupt"
    BURY = "bury"
    EXPIRE = "expire"
    CANCEL = "cancel"
    ABORT = "abort"
    HALT = "halt"
    REDRIVE = "redrive"


TERMINAL = frozenset({State.SUCCEEDED, State.FAILED_TERMINAL, State.CANCELLED})
LIVE = frozenset(State) - TERMINAL
RELEASABLE = frozenset({State.QUEUED, State.WAITING_APPROVAL})


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One event: the arcs it may take (from, to), who fires it, and whether it costs an attempt."""

    event: Event
    arcs: frozenset[tuple[State | None, State]]
    by: str
    costs_attempt: str = "no"
    note: str = ""

    @property
    def sources(self) -> frozenset[State]:
        """The states in which the event may happen (empty for submit)."""
        return frozenset(source for source, _ in self.arcs if source is not None)

    def target(self, source: State) -> State:
        """The state that follows. Raises: KeyError when the event can't happen there; ValueError when it is open."""
        targets = [to for origin, to in self.arcs if origin == source]
        if not targets:
            raise KeyError(f"{self.event} can't happen to a task that is {source}")
        (only,) = targets
        return only


def _row(
    event: Event,
    arcs: str,
    by: str,
    costs_attempt: str = "no",
    note: str = "",
) -> Row:
    pairs: set[tuple[State | None, State]] = set()
    for arc in arcs.split(";"):
        sources, _, target = arc.partition("->")
        for source in sources.split(","):
            pairs.add((State(source.strip()) if source.strip() != "-" else None, State(target.strip())))
    return Row(event=event, arcs=frozenset(pairs), by=by, costs_attempt=costs_attempt, note=note)


TABLE: dict[Event, Row] = {
    row.event: row
    for row in (
        _row(Event.SUBMIT, "- -> queued", "client, kind (spawn), schedule", "-", "ready or not"),
        _row(
            Event.RIPEN,
            "queued -> queued; waiting_approval -> waiting_approval",
            "dispatcher's side",
            note="becomes ready: due, admitted, dependencies done; the auditor, of a question that nobody can answer",
        ),
        _row(
            Event.REPRIORITISE,
            "queued -> queued",
            "tenant, operator",
            note="another flow; refused while it has a lease",
        ),
        _row(
            Event.CLAIM,
            "queued, waiting_approval -> running",
            "worker with lease and token",
            note="from waiting_approval only when decided; checks start_by",
        ),
        _row(Event.ASK, "running -> waiting_approval", "kind", note="the slot is freed"),
        _row(Event.APPROVE, "waiting_approval -> waiting_approval", "tenant, operator", note="becomes ready"),
        _row(
            Event.DENY,
            "waiting_approval -> cancelled; waiting_approval -> waiting_approval",
            "tenant, operator",
            note="stays, ready with the answer, if the kind wants it",
        ),
        _row(
            Event.APPROVAL_TIMEOUT,
            "waiting_approval -> paused; waiting_approval -> cancelled",
            "sweep",
            note="hold approval_timeout, or cancelled, as the kind says; never approved",
        ),
        _row(
            Event.REASK,
            "paused -> waiting_approval",
            "tenant, operator",
            note="only when approval_timeout is all that holds it",
        ),
        _row(
            Event.PAUSE,
            "queued, failed_retryable -> paused; paused -> paused",
            "tenant, operator",
            note="adds a hold",
        ),
        _row(Event.PARK, "running -> paused", "kind", note="hold children"),
        _row(
            Event.UNPARK,
            "paused -> queued; paused -> paused",
            "dispatcher",
            note="when the children ended; queued when that was the last hold",
        ),
        _row(
            Event.MISMATCH,
            "running -> paused",
            "worker",
            note="hold version: unknown kind or version, or another step than recorded",
        ),
        _row(
            Event.RESUME,
            "paused -> queued; paused -> paused",
            "who set the hold; sweep for version, when a session lists it",
            note="queued when that was the last hold",
        ),
        _row(Event.SUCCEED, "running -> succeeded", "worker", "-"),
        _row(Event.FAIL, "running -> failed_retryable", "worker (its watcher on a time-out)", "yes"),
        _row(
            Event.LOSE,
            "running -> queued",
            "sweep",
            note="lost_starts + 1 if it was released singly; abort or halt when that is wanted",
        ),
        _row(Event.REQUEUE, "failed_retryable -> queued", "sweep / tenant, operator", note="when due, or at once"),
        _row(
            Event.POSTPONE,
            "running -> queued",
            "worker",
            note="a resource is full, 429, or its breaker is open; not_before is set",
        ),
        _row(Event.INTERRUPT, "running -> queued", "worker", note="drain"),
        _row(
            Event.BURY,
            "running, failed_retryable -> failed_terminal",
            "worker, sweep",
            "yes, but not for a loss",
            "becomes a dead letter",
        ),
        _row(
            Event.EXPIRE,
            "queued, running, waiting_approval, paused, failed_retryable -> failed_terminal",
            "sweep, claim",
            note="queued before its first claim and past start_by, or past an explicit deadline",
        ),
        _row(
            Event.CANCEL,
            "queued, failed_retryable, paused, waiting_approval -> cancelled",
            "tenant, operator; sweep for parent and dependency",
        ),
        _row(Event.ABORT, "running -> cancelled", "worker, sweep", note="obeys the wish cancel"),
        _row(Event.HALT, "running -> paused", "worker at a checkpoint, sweep", note="obeys the wish pause"),
        _row(Event.REDRIVE, "failed_terminal, cancelled -> queued", "tenant, operator", "resets"),
    )
}

FINAL_EXITS = frozenset({Event.SUCCEED, Event.BURY})  # only these win over a wish to cancel or pause


def legal_changes() -> frozenset[tuple[State, State]]:
    """Every pair of different states that some event connects.

    >>> (State.RUNNING, State.SUCCEEDED) in legal_changes(), (State.SUCCEEDED, State.RUNNING) in legal_changes()
    (True, False)
    """
    return frozenset(
        (source, target)
        for row in TABLE.values()
        for source, target in row.arcs
        if source is not None and source != target
    )


def exit_event(event: Event, *, want: str | None) -> Event:
    """Return the event that leaving `running` really is, given the wish about the task (policy.holds).

    >>> exit_event(Event.FAIL, want="cancel"), exit_event(Event.SUCCEED, want="cancel")
    (<Event.ABORT: 'abort'>, <Event.SUCCEED: 'succeed'>)
    """
    if want is None or event in FINAL_EXITS:
        return event
    return Event.ABORT if want == "cancel" else Event.HALT
