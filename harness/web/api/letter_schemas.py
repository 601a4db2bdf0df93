"""What the API takes and gives about dead letters and redrives, as pydantic models."""

import uuid
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from harness.engine.operate import REASON_MAX_CHARS
from harness.web.api.schemas import NAME, EventOut, TaskOut
from harness.web.api.step_schemas import StepLast

TASKS_MOST = 1000  # named in one request; more go by kind, class or reason
REASON_KEY = r"^[0-9a-f]{16}$"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ReasonOut(BaseModel):
    """Why letters died: `pattern` is the message without numbers and ids (N) and quoted text."""

    model_config = ConfigDict(populate_by_name=True)

    key: str = Field(description="for `reason=` here and in a redrive of all of them")
    kind: str
    error_class: str = Field(serialization_alias="class")
    pattern: str


class LetterOut(BaseModel):
    """A task that has failed for good. `events`: the last of its trace, in order; `steps`: the last that began."""

    model_config = ConfigDict(populate_by_name=True)

    task_id: uuid.UUID
    run_id: uuid.UUID | None
    kind: str
    version: int
    pool: str
    priority: int
    title: str
    error_class: str = Field(serialization_alias="class")
    message: str
    reason: str = Field(description="the key of its reason: GET /api/v1/dead-letters/groups")
    attempts_used: int
    lost_starts: int
    died_at: AwareDatetime
    created_at: AwareDatetime
    last_attempt_slot_s: float | None = Field(description="null: it expired before its first attempt")
    events: list[EventOut]
    steps: list[StepLast]
    steps_finished: int = Field(description="how many; a redrive with the old input doesn't do them again")
    links: Mapping[str, str]


class LetterListed(LetterOut):
    """A letter in a list, with the beginning of its input."""

    input_begin: str = Field(description="the first characters of the input as JSON")
    input_cut: bool


class LetterWhole(LetterOut):
    """A letter with its input."""

    input: Any


class LetterPage(BaseModel):
    """Letters, those that died last first. A page may be short and have a next one: follow `next` until it is null."""

    items: list[LetterListed]
    next: str | None


class GroupOut(BaseModel):
    """Letters of one reason."""

    reason: ReasonOut
    count: int
    newest: AwareDatetime
    oldest: AwareDatetime = Field(description="of those that were counted")
    message: str = Field(description="the beginning of the newest one's message")
    links: Mapping[str, str]


class GroupsOut(BaseModel):
    """Groups, largest first. `looked`: letters that were counted, the newest; `more`: older ones were not."""

    items: list[GroupOut]
    looked: int
    more: bool


class RedriveIn(_Strict):
    """How to send a task again."""

    input: Any = Field(
        default=None,
        description="another input, checked by the kind's schema: the task begins anew, under another "
        "token. Left out: the old input, under the same token",
    )
    preview: bool = Field(default=False, strict=True, description="only say what would happen")
    reason: str = Field(default="", max_length=REASON_MAX_CHARS)


class RedriveManyIn(_Strict):
    """Which letters to send again: by `task_ids`, or by any of `kind`, `class` and `reason_key`."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    task_ids: Annotated[list[uuid.UUID], Field(min_length=1, max_length=TASKS_MOST)] | None = None
    kind: str | None = Field(default=None, pattern=NAME)
    error_class: str | None = Field(default=None, alias="class", pattern=r"^[\w.:-]{1,40}$")
    reason_key: str | None = Field(default=None, pattern=REASON_KEY, description="the `key` of a group's reason")
    preview: bool = Field(default=False, strict=True, description="only say what would happen")
    reason: str = Field(default="", max_length=REASON_MAX_CHARS)


class Refusal(BaseModel):
    """Tasks that can't be sent as they stand: how many, and what the first of them was told."""

    code: str
    count: int
    message: str


class PreviewOut(BaseModel):
    """What a redrive would do now. Nothing was done."""

    tasks: int = Field(description="how many would be sent")
    states: Mapping[str, int] = Field(description="in which those are now")
    anew: int = Field(description="how many get another token; the others keep theirs")
    already: int = Field(description="how many wait in line already")
    refused: list[Refusal]
    more: bool = Field(description="the limit of a call was reached: others may be left")
    attempts: int = Field(description="how many attempts they have had")
    slot_s: float = Field(description="slot-seconds that those have used")
    tokens: int
    usd: float | None = Field(description="null: a model had no price")
    expected_slot_s: float = Field(description="slot-seconds that one more try of each is expected to take")
    room: int | None = Field(description="tasks that the tenant's backlog takes now")
    steps_kept: int = Field(description="finished steps that stay: they are not done again")
    steps_dropped: int = Field(description="finished steps of tasks that begin anew: they are done again")


class Redriven(BaseModel):
    """What a redrive did: `redriven`, `already` (it waits in line), or `preview`: nothing."""

    outcome: str
    anew: bool = Field(default=False, description="with another input, under another token")
    preview: PreviewOut | None = None
    task: TaskOut


class RedrivenMany(BaseModel):
    """What a redrive of many did; with `preview`: would do."""

    redriven: int
    already: int
    refused: list[Refusal]
    more: bool = Field(description="the limit of a call was reached: send the same request again")
    preview: PreviewOut | None = None
