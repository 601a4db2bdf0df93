"""What the API takes and gives, as pydantic models: for checking, for answering and for the documentation."""

import uuid
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, FailFast, Field

from harness.engine.operate import REASON_MAX_CHARS
from harness.engine.submit import NAME_MAX_CHARS
from harness.policy.graph import NAME_MAX_CHARS as NODE_MAX_CHARS
from harness.policy.lifecycle import State
from harness.policy.terms import TAG_MAX_CHARS, TAGS_MAX, TITLE_MAX_CHARS
from harness.web.api.costs import BudgetOut
from harness.web.api.eta_schemas import EtaOut
from harness.web.api.step_schemas import StepsSoFar

NAME = r"^[\w.:-]{1,200}$"  # of a kind or pool to look for
Priority = Annotated[int, Field(strict=True, ge=0, le=3, description="0 (P0, interactive) to 3 (P3, batch)")]
Seconds = Annotated[float, Field(strict=True, gt=0, le=3_155_760_000, allow_inf_nan=False)]
Tags = Annotated[list[Annotated[str, Field(max_length=TAG_MAX_CHARS)]], Field(max_length=TAGS_MAX)]


def _node(value: object) -> object:
    """Check what another node is called by: one message, instead of one for each type that it might have been."""
    if isinstance(value, str) and len(value) <= NODE_MAX_CHARS:
        return value
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise ValueError(f"must be another node's name (at most {NODE_MAX_CHARS} characters), or its place from 0")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class TaskIn(_Strict):
    """A task to do."""

    kind: str = Field(max_length=200, description="a registered kind; GET /api/v1/kinds lists them")
    input: Any = Field(description="the payload; its schema is the kind's")
    priority: Priority | None = Field(default=None, description="without it: 2, ordinary background work")
    not_before: AwareDatetime | None = Field(default=None, description="don't start earlier")
    start_by: AwareDatetime | None = Field(default=None, description="expire if not started by then")
    deadline: AwareDatetime | None = Field(default=None, description="fail if not done by then")
    ttl_s: Seconds | None = Field(
        default=None, description="instead of start_by: seconds from now or not_before; without both: by priority"
    )
    title: str = Field(
        default="", max_length=TITLE_MAX_CHARS, description="what people call it; search finds its words"
    )
    tags: Tags = Field(default=[], description="marks to list it by; a task with title or tags is found by search")
    degrade: bool = Field(
        default=True, strict=True, description="under pressure a cheaper form of it will do; false: always whole"
    )


class NodeIn(TaskIn):
    """A task of a run. It gets in line when those that it depends on have succeeded; one that fails cancels it."""

    name: str = Field(
        default="",
        max_length=NODE_MAX_CHARS,
        description="what other nodes call it in depends_on, and its title if it has none",
    )
    depends_on: Annotated[
        list[
            Annotated[
                Annotated[int, Field(strict=True, ge=0)] | Annotated[str, Field(max_length=NODE_MAX_CHARS)],
                BeforeValidator(_node),
            ]
        ],
        Field(max_length=10_000),
    ] = Field(default=[], description="names of other nodes of this run, or their places from 0")


class RunIn(_Strict):
    """Tasks that belong together: accepted as a whole, or refused as a whole."""

    name: str = Field(default="", max_length=NAME_MAX_CHARS)
    fanout_cap: int | None = Field(default=None, strict=True, ge=1, lt=2**31, description="most of them in flight")
    nodes: Annotated[list[NodeIn], FailFast()] = Field(description="1 to 10,000 tasks")


class ReasonIn(_Strict):
    """Why; it stays in the trace."""

    reason: str = Field(default="", max_length=REASON_MAX_CHARS)


class PauseScopeIn(ReasonIn):
    """Why, and until when; without `until`: until it is resumed."""

    until: AwareDatetime | None = None


class ScopeActed(BaseModel):
    """What the verb did: `paused`, `resumed`, `already`; `held`: your pause is lifted, another's remains."""

    outcome: str


class TaskMade(BaseModel):
    """A task was taken: it is a row now. `existing`: by an earlier request with the same Idempotency-Key."""

    task_id: uuid.UUID
    state: str
    ready: bool = Field(description="false: it waits for not_before or others, is deferred, or has left the line")
    admission: Literal["accepted", "deferred"] = Field(
        default="accepted", description="deferred: taken, and it gets in line later: pressure is high, its line is long"
    )
    reason: str | None = Field(default=None, description="why it is deferred")
    expected_start: AwareDatetime | None = Field(
        default=None, description="predicted from the line as it is; null: nobody can say"
    )
    priority: int
    start_by: AwareDatetime | None = Field(description="it expires if it hasn't started by then")
    existing: bool
    budget: BudgetOut | None = Field(default=None, description="the tenant's budget, when it is near its end")
    links: Mapping[str, str]


class RunMade(BaseModel):
    """A run was taken: all its tasks are rows now, in the order of its nodes."""

    run_id: uuid.UUID
    size: int
    admission: Literal["accepted", "deferred"] = Field(
        default="accepted", description="deferred: taken, and tasks of it get in line later"
    )
    deferred: int = Field(default=0, description="how many of its tasks get in line later")
    reason: str | None = Field(default=None, description="why they are deferred")
    expected_start: AwareDatetime | None = Field(
        default=None, description="of its first task, predicted from the line as it is; null: nobody can say"
    )
    start_by: AwareDatetime | None = Field(description="the first of its tasks expires if it hasn't started by then")
    existing: bool
    budget: BudgetOut | None = Field(default=None, description="the tenant's budget, when it is near its end")
    task_ids: list[uuid.UUID]
    links: Mapping[str, str]


class ErrorOut(BaseModel):
    """Why a task failed."""

    model_config = ConfigDict(populate_by_name=True)

    error_class: str | None = Field(serialization_alias="class")
    message: str | None


class TaskOut(BaseModel):
    """A task. `wants`: what someone wants of it while it runs; `released`: it has a slot, or is about to."""

    task_id: uuid.UUID
    run_id: uuid.UUID | None
    kind: str
    version: int
    pool: str
    priority: int
    state: str
    ready: bool
    released: bool
    holds: list[str]
    waits_for: Literal["children", "dependencies"] | None = Field(
        description="what it waits for, without a slot: tasks that it spawned, or depends on; `why` counts them"
    )
    wants: str | None
    title: str
    tags: list[str]
    schedule_id: uuid.UUID | None = Field(description="the schedule that brought it")
    scheduled_for: AwareDatetime | None = Field(description="the moment that it was brought for")
    can_cancel: bool
    can: list[str] = Field(description="the verbs that would do something to it now")
    attempts_used: int
    lost_starts: int
    postponements: int
    degraded: str | None = Field(
        description="the cheaper form that it runs in, or ran in last, because of pressure; null: as it was asked for"
    )
    created_at: AwareDatetime
    not_before: AwareDatetime | None
    deferred_until: AwareDatetime | None = Field(
        description="deferred by admission: it gets in line when its predicted wait is short enough, or then"
    )
    start_by: AwareDatetime | None
    deadline: AwareDatetime | None
    first_claimed_at: AwareDatetime | None
    finished_at: AwareDatetime | None
    error: ErrorOut | None
    eta: EtaOut | None = Field(default=None, description="expected start and end; null: it has ended")
    links: Mapping[str, str]


class TaskWhole(TaskOut):
    """A task with its result, and what its ended attempts have used."""

    result: Any = None
    tokens: int = 0
    usd: float | None = Field(default=0.0, description="null: not known, see `warning`")
    warning: str | None = None
    steps: StepsSoFar | None = Field(default=None, description="null: it has none")


class TaskPage(BaseModel):
    """Tasks, newest first. A page may be short, even empty, and have a next one: follow `next` until it is null."""

    items: list[TaskOut]
    next: str | None = Field(description="the cursor of the next page; null: there is none")


class EventOut(BaseModel):
    """One trace event."""

    seq: int
    at: AwareDatetime
    event: str
    from_state: str | None
    to_state: str
    actor: str
    data: Any


class Trace(BaseModel):
    """What happened to a task, in order."""

    task_id: uuid.UUID
    events: list[EventOut]
    next: str | None


class PriorityIn(_Strict):
    """Another priority."""

    priority: Priority
    reason: str = Field(default="", max_length=REASON_MAX_CHARS)


class Acted(BaseModel):
    """What a verb did: `cancelled`, `paused`, `resumed`, `requeued`, `reprioritised`.

    `already`: nothing was left to do; `wished`: it runs, and stops at its next checkpoint;
    `held`: your hold is lifted, another's remains.
    """

    outcome: str
    task: TaskOut


class BulkFilter(_Strict):
    """What the tasks have in common; at least one of these."""

    run: uuid.UUID | None = None
    tag: Annotated[str, Field(max_length=TAG_MAX_CHARS)] | None = None
    state: State | None = None
    kind: str | None = Field(default=None, pattern=NAME)
    pool: str | None = Field(default=None, pattern=NAME)
    priority: Priority | None = None


class BulkIn(_Strict):
    """A verb for all of the tenant's tasks that match: unfinished ones.

    With redrive the ended ones of a run or tag; without either the dead letters, and no cancelled ones.
    """

    verb: str = Field(max_length=50, description="cancel, pause, resume, requeue, priority or redrive")
    filter: BulkFilter
    preview: bool = Field(default=False, strict=True, description="only count")
    reason: str = Field(default="", max_length=REASON_MAX_CHARS)
    priority: Priority | None = Field(default=None, description="for the verb priority: the new one")
    cursor: str | None = Field(default=None, max_length=100, description="the `next` of an answer that was not the end")


class Previewed(BaseModel):
    """How many tasks match, exactly up to 100,000 (`more`: there are more), and those by state."""

    verb: str
    matching: int
    more: bool
    by_state: Mapping[str, int]


class BulkOut(BaseModel):
    """What a bulk verb did: done by outcome, `already`, and refused by reason. `next`: send again with this cursor."""

    verb: str
    matched: int = Field(description="tasks looked at; 0: nothing matches")
    done: Mapping[str, int]
    already: int
    refused: Mapping[str, int]
    next: str | None
    stopped: str = Field(description="why it ended before it was through; empty: it went through")


class RunOut(BaseModel):
    """A run with its tasks counted by state, spawned ones included."""

    run_id: uuid.UUID
    name: str
    size: int
    fanout_cap: int | None
    wants: str | None
    created_at: AwareDatetime
    states: Mapping[str, int]
    finished: bool = Field(description="no task of it is live any more")
    eta: EtaOut | None = Field(default=None, description="when its last task should end; null: it has")
    links: Mapping[str, str]


class KindOut(BaseModel):
    """A registered kind of work."""

    name: str
    version: int
    pool: str
    resources: Mapping[str, int]
    timeout_s: float
    max_attempts: int
    bundle: bool
    costs: bool = Field(description="it spends money: the tenant's budget holds it")
    cheaper_forms: list[str] = Field(description="in which its tasks may run under pressure, from mild to cheap")
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None


class Kinds(BaseModel):
    """All registered kinds, by name."""

    items: list[KindOut]


class Problem(BaseModel):
    """RFC 9457: what is wrong, which field, and how to mend it."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    code: str
    field: str | None = None
    errors: list[dict[str, str]] | None = None
