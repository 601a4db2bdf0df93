"""What a tick decided for one pool: the slots given in order, why others got none, and what its line learns from it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from harness.policy.flow import FlowFacts
from harness.policy.forms import WHOLE, Form


@dataclass(frozen=True, kw_only=True, slots=True)
class Pick:
    """One slot given: the tasks that share it (more than one: a bundle). `quarantine`: it runs there.

    `lane`: who pays (lanes.py). `est_s`: seconds that all its tasks are expected to take; `cost`: what a second of it
    costs, at least 1 (rule 9). `large`: as a whole it needs more than one of a resource, or several (rule 11).
    `form`: what it is released in.
    """

    flow: FlowFacts
    kind: str
    tasks: tuple[int, ...]
    quarantine: bool = False
    lane: int
    est_s: float
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """The picks in order, why flows that were looked at got nothing (flow id -> reason), the flows seen empty.

    The rest is for Line.apply: credits before the picks are paid, which lanes had a backlog, by class the clock of the
    tenant and by tenant that of the run that had least of those that may go, since when flows wait, what is reserved.
    """

    pool: str
    now_s: float
    slots: int
    picks: tuple[Pick, ...] = ()
    held: Mapping[int, str]
    empty: tuple[int, ...] = ()
    credits_s: tuple[float, ...]
    waiting: tuple[bool, ...]
    lowest: Mapping[int, float] = field(default_factory=dict)
    floors: Mapping[tuple[int, int], float] = field(default_factory=dict)
    since: tuple[tuple[int, float], ...] = ()
    bundled: bool = False
    reserved: Mapping[str, Reserved] = field(default_factory=dict)
