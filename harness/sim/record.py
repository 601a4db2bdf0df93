"""Turns what the event table has of a task into its line of a trace. It only reads what it is given.

What people did to it in line (a pause, another priority) is left out: the task waits as if nobody had.
"""

from collections.abc import Sequence

from harness.policy.lifecycle import RELEASABLE, Event, State
from harness.sim.trace import TracedAttempt, TracedTask

Happened = tuple[float, str, str | None, str]  # at (seconds), event, from, to

_WITHDRAWN = (Event.CANCEL, Event.EXPIRE)


def task_of(
    *,
    submit_s: float,
    tenant: int,
    run: int,
    kind: str,
    pool: str,
    priority: int,
    signature: str,
    events: Sequence[Happened],
) -> TracedTask:
    """Return a task's line. `events`: in order, in the seconds that `submit_s` counts in."""
    attempts: list[TracedAttempt] = []
    ready_s = 0.0
    start_s: float | None = None
    ended_s: float | None = None
    withdrawn_s: float | None = None
    for at_s, event, before, after in events:
        if event == Event.CLAIM and after == State.RUNNING:
            start_s, ended_s = at_s, None
        elif before == State.RUNNING and after == State.RUNNING:
            continue  # a wish, a step: it runs on
        elif before == State.RUNNING and start_s is not None:
            again = after in RELEASABLE and event in (Event.LOSE, Event.INTERRUPT)
            attempts.append(TracedAttempt(event, start_s, at_s - start_s, 0.0 if again else None))
            start_s, ended_s = None, at_s
        elif event in _WITHDRAWN:
            withdrawn_s = at_s - submit_s if not attempts else None
        elif after in RELEASABLE and event != Event.SUBMIT:
            if ended_s is not None and attempts[-1].gap_s is None:
                last = attempts[-1]
                attempts[-1] = TracedAttempt(last.event, last.start_s, last.slot_s, at_s - ended_s)
            elif not attempts:
                ready_s = at_s - submit_s if event == Event.RIPEN else ready_s
    return TracedTask(
        submit_s=submit_s,
        tenant=tenant,
        run=run,
        kind=kind,
        pool=pool,
        priority=priority,
        signature=signature,
        ready_s=ready_s,
        attempts=tuple(attempts),
        withdrawn_s=withdrawn_s,
    )
