"""What signals are measured from: rows as the store reads them and as the simulator has them. Values only.

Whoever reads hands over everything that it can bound; what it couldn't read is None, and what isn't there is empty.
Ages are seconds before the moment of the look; nothing here names a tenant to anybody.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

WINDOW_S = 60.0  # attempts count that ended so lately
ARRIVED_S = 300.0  # tasks count that came so lately
BIN_S = 10.0  # they are counted in bins of this


@dataclass(frozen=True, slots=True)
class Waits:
    """Tasks of one (pool, priority, signature) that are ready and have no slot."""

    pool: str
    priority: int
    signature: str
    number: int


@dataclass(frozen=True, slots=True)
class Held:
    """Leases of one (pool, signature); `est_s`: what a task of them is expected to take, in the mean."""

    pool: str
    signature: str
    leases: int
    est_s: float


@dataclass(frozen=True, slots=True)
class Head:
    """The first task of a flow that waits for a slot or a limit (and for nothing of its tenant's own).

    `age_s`: since it may run.
    """

    pool: str
    priority: int
    tenant: int
    weight: float
    age_s: float


@dataclass(frozen=True, slots=True)
class Arrived:
    """Tasks of one (pool, signature) submitted in one bin; `bin` 0: in the last BIN_S seconds."""

    pool: str
    signature: str
    priority: int
    bin: int
    number: int


@dataclass(frozen=True, slots=True)
class Ended:
    """One attempt of the last WINDOW_S. `verdict`: the event that ended it; `error`: its class, "" without."""

    pool: str
    priority: int
    tenant: int
    signature: str
    kind: str
    slot_s: float
    verdict: str
    error: str
    age_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Limit:
    """A resource: how many may use it, how many do; `calls`: it is held by the call, not by the task."""

    limit: int
    in_use: int
    calls: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """All of it at one moment. `slots`: of the pools that tasks are submitted to.

    `ended_s`, `arrived_s`: the spans that the bounded rows cover, in seconds. `limits` None: nobody has seen how the
    resources that are held by the call stand. `connections_busy_ratio`: of the budget of Harness's own database.
    `waits_s`: the 95th of 100 waits for a connection, by pool of connections; `databases`: which of those are of
    databases. None: couldn't be read.
    """

    slots: Mapping[str, int]
    waiting: tuple[Waits, ...] = ()
    held: tuple[Held, ...] = ()
    heads: tuple[Head, ...] = ()
    arrived: tuple[Arrived, ...] = ()
    arrived_s: float = ARRIVED_S
    ended: tuple[Ended, ...] = ()
    ended_s: float = WINDOW_S
    limits: Mapping[str, Limit] | None = field(default_factory=dict)
    connections_busy_ratio: float | None = 0.0
    waits_s: Mapping[str, float] | None = field(default_factory=dict)
    databases: frozenset[str] = frozenset()
