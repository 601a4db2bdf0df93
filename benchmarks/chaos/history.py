"""What a run of chaos left: accepted work, the trace, leases as sampled, and what the receiver outside of Harness saw.

Frozen values, no I/O. Times are epoch seconds of one machine's clock. A history can be written as JSON and read again,
so that what a run found can be looked at after it, and so that the checker's tests have one to plant faults in.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Accepted:
    """One answer 202 or 200 that a client saw. `i`: the client's own number of this piece of work, one a key."""

    i: int
    task: str
    tenant: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskRow:
    """A task as it stood at the end. `i`: the number in its payload; `effects`: how many it has if it succeeds.

    `parent`: the id of the task that spawned it; `children`, `families`: how many it spawns (benchmarks.kinds.shapes).
    """

    id: int
    task: str
    tenant: str
    kind: str
    pool: str
    priority: int
    i: int
    effects: int
    state: str
    event_no: int
    holds: tuple[str, ...]
    due_in_s: float | None
    leased: bool
    parent: int | None = None
    children: int = 0
    families: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class TraceEvent:
    """One event of the trace. `id`: of the task; `step`: the ordinal of the step, or of the question, that it is of.

    `detail`: that step's name, or the choice of a decision.
    """

    id: int
    seq: int
    at_s: float
    event: str
    source: str | None
    target: str
    step: int | None = None
    detail: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Visit:
    """One execution as the receiver saw it: a connection that its process held until `ended_s`.

    `began_s` is the worker's own, taken right after a fence check. `number`: the how manieth of this
    token. A kill -9 ends it at once, by the kernel; a SIGSTOP doesn't.
    """

    token: str
    i: int
    pool: str
    pid: int
    number: int
    began_s: float
    ended_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Effect:
    """One effect: its token and number in the task; `sent_s` by the worker right after its fence check; `came_s`.

    `token` is the task's, as that of its execution; `step`: the token that the effect itself had, if it is a step's.
    """

    token: str
    i: int
    n: int
    pid: int
    sent_s: float
    came_s: float
    step: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Told:
    """What an execution was told, and told the receiver: how children ended ("gathered"), or an answer ("ask-N")."""

    token: str
    what: str
    at_s: float
    values: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A question (row of approval) as it stood at the end. `id`: of its task."""

    id: int
    name: str
    choices: tuple[str, ...]
    deny: str
    asks: int
    open: bool
    verdict: str | None
    choice: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """One answer to somebody who decided a question. `told`: (verdict, choice) that stands, by that answer."""

    task: str
    verb: str
    choice: str | None
    status: int
    at_s: float
    told: tuple[str | None, str | None] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
    """One event of a task's stream as a client got it. `connection`: the how manieth of that client.

    Of a `state`: its number and name; of `output`: attempt, the characters before it, and the text.
    """

    task: str
    connection: int
    at_s: float
    event: str
    seq: int | None = None
    name: str | None = None
    attempt: int | None = None
    offset: int | None = None
    text: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseSeen:
    """One lease in a sample. `tasks`: ids of its members; none: a zombie."""

    id: int
    pool: str
    via: str | None
    tenant: str
    run: int
    signature: str
    pid: int | None
    claimed: bool
    tasks: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """All leases at one moment, in one snapshot. `slots`: of the sessions that lived then or until shortly before.

    `paused`: the queues (`<pool>.p<priority>`) that pressure paused. `waiting`: how many tasks were parked, paused or
    undecided; `leased_waiting`: those of them (ids) that were on a lease.
    """

    at_s: float
    slots: Mapping[str, int]
    leases: tuple[LeaseSeen, ...]
    paused: tuple[str, ...] = ()
    waiting: int = 0
    leased_waiting: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """A fault that was carried out. `role`: whom it hit; `until_s`: when a stopped process was let go on.

    `family`: the processes below the one that was killed: prefork children outlive their parent, but not its session.
    """

    what: str
    role: str
    pid: int
    at_s: float
    until_s: float | None = None
    family: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Caps:
    """What must never be exceeded: tasks in flight by tenant (`NAME`, `NAME/POOL`) and by run; needs of a resource.

    `resources`: those held by the task. Of one held by the call a lease more than its limit waits (policy.calls, R3):
    there the permits keep the limit, and the provider's own count of calls in flight shows it.
    """

    tenants: Mapping[str, int]
    runs: Mapping[int, int]
    resources: Mapping[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Provider:
    """The provider emulator's own counters, and `attempts`: claims of tasks that call it; `succeeded` of those.

    `slots`: in how many of Harness's slots such a task can be at a time.
    """

    calls: int
    ends: int
    in_flight: int
    in_flight_max: int
    answered: int
    attempts: int
    succeeded: int
    slots: int


@dataclass(frozen=True, kw_only=True, slots=True)
class LevelChange:
    """A change of the level of pressure: from `before` to `after`, and what was said of why."""

    at_s: float
    before: str
    after: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    """One run. `leases_left`: rows of lease and lease_member a minute after the last task had ended.

    `edges`: (i, on) by the numbers of work: what a client submitted as depending on what. `followed`: tasks whose
    stream somebody watched until the end.
    """

    ended_s: float
    accepted: tuple[Accepted, ...]
    tasks: tuple[TaskRow, ...]
    trace: tuple[TraceEvent, ...]
    visits: tuple[Visit, ...]
    effects: tuple[Effect, ...]
    samples: tuple[Sample, ...]
    faults: tuple[Fault, ...]
    caps: Caps
    leases_left: int
    provider: Provider | None = None
    levels: tuple[LevelChange, ...] = ()
    told: tuple[Told, ...] = ()
    questions: tuple[Question, ...] = ()
    said: tuple[Said, ...] = ()
    frames: tuple[Frame, ...] = ()
    followed: tuple[str, ...] = ()
    edges: tuple[tuple[int, int], ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        found = asdict(self)
        found["caps"]["runs"] = [[run, cap] for run, cap in self.caps.runs.items()]
        return found

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "History":
        """Build it from what `as_json` returned."""
        rows: dict[str, Any] = {
            name: tuple(_build(kind, one) for one in values[name])
            for name, kind in (
                ("accepted", Accepted),
                ("tasks", TaskRow),
                ("trace", TraceEvent),
                ("visits", Visit),
                ("effects", Effect),
                ("faults", Fault),
                ("levels", LevelChange),
                ("told", Told),
                ("questions", Question),
                ("said", Said),
                ("frames", Frame),
            )
        }
        caps = dict(values["caps"]) | {"runs": {int(run): cap for run, cap in values["caps"]["runs"]}}
        samples = tuple(
            Sample(
                at_s=one["at_s"],
                slots=one["slots"],
                leases=tuple(_build(LeaseSeen, lease) for lease in one["leases"]),
                paused=tuple(one["paused"]),
                waiting=one["waiting"],
                leased_waiting=tuple(one["leased_waiting"]),
            )
            for one in values["samples"]
        )
        return cls(
            ended_s=values["ended_s"],
            samples=samples,
            caps=Caps(**caps),
            leases_left=values["leases_left"],
            provider=Provider(**values["provider"]) if values["provider"] else None,
            followed=tuple(values["followed"]),
            edges=tuple((i, on) for i, on in values["edges"]),
            **rows,
        )


def _build(kind: Any, values: Mapping[str, Any]) -> Any:
    found = {one.name: values[one.name] for one in fields(kind)}
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in found.items()})


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing that must not be. `column`: the figure that counts it."""

    column: str
    subject: str
    what: str
