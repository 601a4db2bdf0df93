"""Plays a recorded trace in a world: its tasks arrive when they did, and their attempts take what they took.

When the simulation needs more attempts than were recorded (it decided otherwise), the last one is taken once more, as a
success. Waits are the simulation's own: that is what a replay is for.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from harness.policy.lifecycle import Event
from harness.sim.rows import Run, Task, Tenant
from harness.sim.trace import Trace, TracedAttempt, TracedTask
from harness.sim.world import World


@dataclass(frozen=True, slots=True)
class Replayed:
    """A recorded task that arrives."""

    at_s: float
    tenant: Tenant
    run: Run | None
    task: TracedTask


def tenant_name(number: int) -> str:
    """Return how a recorded tenant is called.

    >>> tenant_name(7)
    't7'
    """
    return f"t{number}"


def arrivals(trace: Trace, world: World, tenants: Mapping[str, list[Tenant]]) -> Iterator[Replayed]:
    """Yield the tasks in order. Tenants that aren't of this cell are left out."""
    runs: dict[int, Run] = {}
    for task in trace.tasks:
        mine = tenants.get(tenant_name(task.tenant))
        if not mine:
            continue
        run = runs.get(task.run)
        if run is None and task.run:
            run = runs[task.run] = world.add_run(mine[0], trace.runs.get(task.run, (0, None))[1])
        yield Replayed(task.submit_s, mine[0], run, task)


def attempt(task: Task) -> TracedAttempt | None:
    """Return what the attempt under way was when it was recorded (None: the task isn't from a trace)."""
    if task.replay is None:
        return None
    if task.starts <= len(task.replay):
        return task.replay[task.starts - 1]
    slot_s = task.replay[-1].slot_s if task.replay else 1.0
    return TracedAttempt(str(Event.SUCCEED), 0.0, slot_s, None)
