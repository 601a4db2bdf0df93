"""The checker's rules for what waits for others: it holds no lease, and doesn't run before they are through."""

from collections.abc import Callable, Iterator

from benchmarks.chaos.history import Finding, TaskRow
from benchmarks.chaos.view import CLOCK_S, View, token
from harness.policy.lifecycle import TERMINAL, Event, State

PARKED = "children"


def leased(seen: View) -> Iterator[Finding]:
    """In no sample is a task on a lease that is parked, paused, or waits for an answer."""
    for sample in seen.history.samples:
        for task in sample.leased_waiting:
            what = f"was on a lease at {sample.at_s:.3f}, while it waited"
            yield Finding(column="leases_while_waiting", subject=_name(seen, task), what=what)


def stuck(seen: View) -> Iterator[Finding]:
    """What is still parked for its children at the end has one that lives."""
    alive = {row.parent for row in seen.rows.values() if row.parent is not None and row.state not in TERMINAL}
    for row in seen.rows.values():
        if row.state == State.PAUSED and PARKED in row.holds and row.id not in alive:
            yield Finding(column="lost", subject=row.task, what="is parked, and all its children have ended")


def too_soon(seen: View) -> Iterator[Finding]:
    """A node of a run is claimed only after all that it depends on have succeeded."""
    tasks = {one.i: one.task for one in seen.history.accepted}
    for i, on in seen.history.edges:
        node, other = (seen.rows.get(token(tasks.get(one, ""))) for one in (i, on))
        if node is None or other is None:
            continue  # rule `lost` tells of it
        claims = [event.at_s for event in seen.traces.get(node.id, ()) if event.event == Event.CLAIM]
        through = [event.at_s for event in seen.traces.get(other.id, ()) if event.event == Event.SUCCEED]
        if claims and not (through and through[0] <= claims[0] + CLOCK_S):
            what = f"ran at {claims[0]:.3f}, before {other.task}, which it depends on, had succeeded"
            yield Finding(column="dependencies_wrong", subject=node.task, what=what)
        if node.state not in TERMINAL and other.state in TERMINAL and other.state != State.SUCCEEDED:
            what = f"is {node.state}, though {other.task}, which it depends on, is {other.state}"
            yield Finding(column="lost", subject=node.task, what=what)


def _name(seen: View, task: int) -> str:
    row: TaskRow | None = seen.by_id.get(task)
    return row.task if row else f"task {task}"


RULES: tuple[Callable[[View], Iterator[Finding]], ...] = (leased, stuck, too_soon)
