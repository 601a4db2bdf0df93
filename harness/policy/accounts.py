"""What is written of a line: the rows that PostgreSQL keeps of its clocks and credits, and what settles bring back.

Plain values; line.py reads and makes them. Everything else of a line can be found again from the flows.
"""

from dataclasses import dataclass
from typing import NamedTuple

ClockKey = tuple[int, int, int]  # priority, tenant, run (0: the tenant itself)


@dataclass(frozen=True, slots=True)
class ClockRow:
    """Virtual time of a tenant in a class, or of a run in it. `g`: singles against runs (rule 13), of a tenant's.

    `at_s`: when it was last charged.
    """

    priority: int
    tenant: int
    run: int
    v: float
    g: float
    at_s: float


@dataclass(frozen=True, slots=True)
class CreditRow:
    """One account of a pool (lanes.Account), as it stood at `at_s`."""

    lane: int
    credit_s: float
    est_s: float
    mean_s: float
    square_s: float
    v: float
    at_s: float


@dataclass(frozen=True, slots=True)
class Changes:
    """What must be written, absolute: the rows that were touched, and the clocks that say nothing any more."""

    clocks: tuple[ClockRow, ...] = ()
    credits: tuple[CreditRow, ...] = ()
    forgotten: tuple[ClockKey, ...] = ()


class Charge(NamedTuple):
    """What a lease held beyond its estimate, or short of it; once for each task that left it.

    `n`: tasks that ended with a measured time, `slot_s` in all. `cost`: what a second of it costs (rule 9).
    `owed_s`: (slot_s, and what passed between release and claim, - estimate) * cost; a refund is negative.
    (A tuple by name, since each task makes one: see plan.py.)
    """

    priority: int
    tenant: int
    run: int
    lane: int
    owed_s: float
    kind: str = ""
    n: int = 0
    slot_s: float = 0.0
    cost_s: float = 0.0
