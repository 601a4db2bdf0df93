"""A scenario as frozen values: what there is, what comes, what goes wrong, what must come of it. Times are seconds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Literal

from harness.policy.errors import ErrorClass
from harness.policy.forms import Form
from harness.sim.trace import Trace

Steps = tuple[tuple[float, int], ...]  # (from this second on, the value)
LawName = Literal["fixed", "exponential", "lognormal"]
ArrivalLaw = Literal["poisson", "every", "at"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Law:
    """How long a task holds its slot. `mu`, `sigma`: of the logarithm (lognormal); `mean_s` for all."""

    name: LawName
    mean_s: float
    mu: float = 0.0
    sigma: float = 0.0

    def draw(self, dice: Random) -> float:
        """Return seconds."""
        if self.name == "fixed":
            return self.mean_s
        if self.name == "exponential":
            return dice.expovariate(1.0) * self.mean_s
        return dice.lognormvariate(self.mu, self.sigma)


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """A kind of work. `failures`: share of attempts that end in an error class; `zombie_s`: after a time-out."""

    name: str
    pool: str
    signature: str = ""
    law: Law
    est_s: float
    bundle: bool = False
    costs: bool = False
    timeout_s: float | None = None
    zombie_s: float = 0.0
    max_attempts: int = 4
    failures: tuple[tuple[ErrorClass, float], ...] = ()
    retry_after_s: float | None = None
    calls: str = ""  # the provider that its tasks call, if any
    call_ratio: float = 1.0  # of its time, at the end, that the call takes

    @property
    def signatures(self) -> frozenset[str]:
        """Every signature that its tasks may have: here all have the same."""
        return frozenset({self.signature})

    @property
    def forms(self) -> tuple[Form, ...]:
        """Cheaper forms: here none."""
        return ()


@dataclass(frozen=True, kw_only=True, slots=True)
class TenantGroup:
    """Tenants alike: called `name`, or `name-1` .. when there are several. `quotas`: (scope, name, cap).

    `later_caps`, `later_weights`: (from this second on, the value).
    """

    name: str
    number: int = 1
    cap: int = 1000
    weight: float = 1.0
    backlog_quota: int = 10**9
    top_priority: int = 0
    quotas: tuple[tuple[str, str, int], ...] = ()
    later_caps: Steps = ()
    later_weights: tuple[tuple[float, float], ...] = ()

    def names(self) -> list[str]:
        """Return the tenants' names."""
        return [self.name] if self.number == 1 else [f"{self.name}-{i}" for i in range(1, self.number + 1)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """What a group submits: for each tenant, `batch` tasks at each arrival, as one run if `as_run`; of `kinds` in turn.

    `rate_per_s`, `every_s`: per tenant. `skew`: how unequal the tenants' Poisson rates are (Zipf's exponent).
    """

    tenants: str
    kinds: tuple[str, ...]
    priority: int
    law: ArrivalLaw
    rate_per_s: float = 0.0
    every_s: float = 0.0
    at_s: tuple[float, ...] = ()
    from_s: float = 0.0
    until_s: float
    batch: int = 1
    as_run: bool = False
    fanout_cap: int | None = None
    skew: float = 0.0
    deadline_s: float | None = None  # after it came


@dataclass(frozen=True, kw_only=True, slots=True)
class Pause:
    """A pause in force for a while; a tenant's is named by the tenant's name."""

    scope: str
    key: str
    from_s: float
    until_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Breaker:
    """A time in which a resource's breaker is open. Such a resource is held by the call."""

    resource: str
    from_s: float
    until_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Provider:
    """What calls go to. `quota`: calls at once that it takes, of which only it knows; what is beyond it is refused
    after `refuse_after_s`, with `retry_after_s` (0: not named). `down`: when every call fails, from and until.

    The rest is the limit before it, as in resources.toml; `capacity`: its ceiling.
    """

    quota: Steps
    capacity: int
    limiter: str = "csl"
    floor: int = 1
    start: int | None = None
    p0_reserve: int = 0
    refuse_after_s: float = 0.2
    retry_after_s: float = 0.0
    down: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """What a signal reads for a while, of those that a world has nothing to measure them from."""

    signal: str
    value: float
    from_s: float
    until_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Loss:
    """A worker process with so many slots of a pool dies; another is there `back_s` later."""

    at_s: float
    pool: str
    slots: int
    back_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Dispatcher:
    """What the real dispatcher's loop costs in time. `hop_s`: from the commit of a release to the claim."""

    coalesce_s: float = 0.005
    hop_s: float = 0.003
    sweep_s: float = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Measure:
    """What is measured when: waits of tasks ready in [from_s, until_s), fairness in windows of `window_s`.

    A window ends every `step_s`: they overlap when that is less.
    """

    from_s: float
    until_s: float
    window_s: float
    step_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Phase:
    """A part of the time for which shares are told by themselves."""

    name: str
    from_s: float
    until_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Expect:
    """A figure of the report (its path, dotted) and the range that it must be in."""

    figure: str
    least: float
    most: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """All of it. `end_s`: nothing happens after (None: until all is done). `cells`: parts by tenant."""

    title: str
    seed: int
    plan: str
    duration_s: float
    end_s: float | None
    ci: bool
    cells: int
    cells_run: int
    pools: Mapping[str, Steps]
    resources: Mapping[str, Steps]
    kinds: Mapping[str, Kind]
    tenants: Mapping[str, TenantGroup]
    works: tuple[Work, ...]
    pauses: tuple[Pause, ...] = ()
    breakers: tuple[Breaker, ...] = ()
    losses: tuple[Loss, ...] = ()
    providers: Mapping[str, Provider] = field(default_factory=dict)
    pressure: bool = False  # signals are measured, and the level acts
    admission: bool = False  # the door predicts waits, and goes by them and the level
    said: tuple[Said, ...] = ()
    foresee_s: float = 0.0  # a pass of forecasts comes so often, and is held against what came; 0: none does
    phases: tuple[Phase, ...] = ()
    dispatcher: Dispatcher = field(default_factory=Dispatcher)
    measure: Measure
    expect: tuple[Expect, ...] = ()
    trace: Trace | None = None
