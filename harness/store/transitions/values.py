"""What the writer of states takes and returns: frozen values, no behaviour."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from harness.policy.lifecycle import Event


@dataclass(frozen=True, kw_only=True, slots=True)
class NewTask:
    """One task to insert. `input` is JSON text, checked by the kind's schema; times are aware.

    `marks`: None, or JSON text of an object: title, tags, schedule, scheduled_for, terms (policy.terms).
    `degrade`: a cheaper form of it will do under pressure.
    `deferred`: why the door lets it in later, by not_before at the latest.
    `depends`: on tasks submitted with it; `linked`: others of them depend on it.
    """

    kind: str
    version: int
    pool: str
    priority: int
    signature: str
    input: str
    public_id: uuid.UUID
    not_before: datetime | None = None
    start_by: datetime | None = None
    deadline: datetime | None = None
    marks: str | None = None
    degrade: bool = True
    deferred: str | None = None
    depends: bool = False
    linked: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class NewLease:
    """One slot to take: the tasks (ids) that run on it, one after the other, and where their rows lie. In seconds.

    `est_s` of each of them, times `cost`, is what was charged for it; `lane`: who paid (policy.lanes). `degraded`: the
    cheaper form that they run in.
    """

    token: int
    pool: str
    via: str | None
    tenant: int
    run: int
    priority: int
    lane: int
    kind: str
    signature: str
    est_s: float
    cost: float
    timeout_s: float
    tasks: tuple[int, ...]
    places: tuple[str, ...]
    degraded: str | None = None


@dataclass(frozen=True, slots=True)
class Released:
    """What a commit made: (lease id, members) by token. `refused`: by token, the cap that a lease would have passed."""

    made: Mapping[int, tuple[int, int]]
    refused: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class ClaimedTask:
    """A task that is now running here. `deadline_in_s`: seconds left until its explicit deadline, if it has one.

    `token_epoch`: how often it was sent again with another input; each time its idempotency token changes. `claimed_s`:
    now, in epoch seconds of the database's clock. `degraded`: the cheaper form to run it in; None: whole.
    """

    id: int
    public_id: uuid.UUID
    tenant: int
    run: int
    kind: str
    version: int
    release_no: int
    attempts_used: int
    postponements: int
    lost_starts: int
    input: Any
    expired: bool
    deadline_in_s: float | None
    token_epoch: int = 0
    priority: int = 2
    claimed_s: float = 0.0
    degraded: str | None = None


class Lost(NamedTuple):
    """A task that was taken back from a worker that is gone. `release_no`: of the attempt that is lost."""

    task: int
    state: str
    event: str
    release_no: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """How one attempt ended. `output` and `error` are JSON values; `delay_s`: seconds until it is due again.

    `usd`: what its tokens cost; None: nobody knows, a model had no price.
    """

    task: int
    release_no: int
    event: Event
    slot_s: float
    hold: str | None = None
    delay_s: float | None = None
    spends: int = 0
    output: str | None = None
    error: Mapping[str, object] | None = None
    error_class: str | None = None
    message: str | None = None
    traceback: str | None = None
    tokens: int = 0
    usd: float | None = 0.0
    data: Mapping[str, object] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """What ended on one lease. `keep_lease`: it stays as a zombie, because its thread runs on."""

    lease: int
    token: int
    outcomes: Sequence[Outcome]
    keep_lease: bool = False
