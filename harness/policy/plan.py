"""What a tick decided for one pool: the slots given in order, why others got none, and what its line learns from it.

Pick and Plan are tuples by name: a tick makes one for each slot, and a frozen dataclass takes four times as long.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from harness.policy.flow import FlowFacts
from harness.policy.forms import WHOLE, Form

NOTHING: Mapping[Any, Any] = MappingProxyType({})


class Pick(NamedTuple):
    """One slot given: the tasks that share it (more than one: a bundle). `quarantine`: it runs there.

    `lane`: who pays (lanes.py). `est_s`: seconds that all its tasks are expected to take; `cost`: what a second of it
    costs, at least 1 (rule 9). `large`: as a whole it needs more than one of a resource, or several (rule 11).
    `form`: what it is released in.
    """

    flow: FlowFacts
    kind: str
    tasks: tuple[int, ...]
    lane: int
    est_s: float
    quarantine: bool = False
    cost: float = 1.0
    large: bool = False
    form: Form = WHOLE

    @property
    def signature(self) -> str:
        """What it holds."""
        return self.form.of(self.flow)


@dataclass(frozen=True, slots=True)
class Reserved:
    """All that a flow's next task needs is kept for it. `shadow_s`: when it should be there; `lane`: who pays."""

    flow: FlowFacts
    lane: int
    shadow_s: float


class Plan(NamedTuple):
    """The picks in order, why flows that were looked at got nothing (flow id -> reason), the flows seen empty.

    The rest is for Line.apply: credits before the picks are paid, which lanes had a backlog, by class the clock of the
    tenant and by tenant that of the run that had least of those that may go, since when flows wait, what is reserved.
    """

    pool: str
    now_s: float
    slots: int
    held: Mapping[int, str]
    credits_s: tuple[float, ...]
    waiting: tuple[bool, ...]
    picks: tuple[Pick, ...] = ()
    empty: tuple[int, ...] = ()
    lowest: Mapping[int, float] = NOTHING
    floors: Mapping[tuple[int, int], float] = NOTHING
    since: tuple[tuple[int, float], ...] = ()
    bundled: bool = False
    reserved: Mapping[str, Reserved] = NOTHING
