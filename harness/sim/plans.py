"""What may decide a tick of a simulation, what a tick decided, and who is told of what changes.

Invariants: a strategy decides by what it is handed, and changes nothing.
"""

from dataclasses import dataclass
from typing import Protocol

from harness.policy.flow import Look
from harness.policy.known import Standing
from harness.policy.line import Line
from harness.policy.look import decide
from harness.policy.plan import Plan
from harness.policy.room import Room
from harness.sim.rows import Lease, Task


@dataclass(frozen=True, slots=True)
class Tick:
    """What a tick decided for one pool, and the leases made of it, in the order of the picks."""

    pool: str
    plan: Plan
    leases: tuple[Lease, ...]


class Decide(Protocol):
    """Decides a tick of one pool (policy.look.decide)."""

    def __call__(self, pool: str, now_s: float, *, room: Room, standing: Standing, line: Line, look: Look) -> Plan: ...


PLANS: dict[str, Decide] = {"fair": decide}
FIRST_COME = "first_come"  # no plan: one line for all, without limits
NO_CAP = 10**9  # what a tenant may have in flight there


class Watch(Protocol):
    """Who measures: told of each change, after it."""

    def ready(self, task: Task) -> None:
        """A task waits for a slot."""
        ...

    def withdrawn(self, task: Task) -> None:
        """It doesn't any more: it was cancelled."""
        ...

    def taken(self, lease: Lease) -> None:
        """A slot was given to its members."""
        ...

    def left(self, lease: Lease) -> None:
        """The slot is free again."""
        ...
