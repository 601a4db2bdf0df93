"""What the API takes and gives about questions to people, as pydantic models."""

import uuid
from collections.abc import Mapping

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from harness.engine.approve import LABEL_MOST_CHARS, LIFE_MOST_S, LIFE_S
from harness.policy.approvals import CHOICE_MOST_CHARS, NOTE_MOST_CHARS
from harness.web.api.schemas import TaskOut


class DenyIn(BaseModel):
    """A no."""

    model_config = ConfigDict(extra="forbid")

    reason: str = Field(default="", max_length=NOTE_MOST_CHARS, description="why; kept with the decision, as its note")


class ApproveIn(DenyIn):
    """A yes: one of the choices, or none where there is only one."""

    choice: str | None = Field(default=None, max_length=CHOICE_MOST_CHARS)


class LinkIn(BaseModel):
    """Whom a link is for, and how long it is good."""

    model_config = ConfigDict(extra="forbid")

    for_: str = Field(
        alias="for", min_length=1, max_length=LABEL_MOST_CHARS, description="who will get it; kept with the decision"
    )
    valid_s: float = Field(default=LIFE_S, gt=0, le=LIFE_MOST_S, allow_inf_nan=False, description="seconds from now")


class LinkOut(BaseModel):
    """A link: whoever has it may decide this asking of the question, once."""

    url: str
    expires_at: AwareDatetime


class ApprovalOut(BaseModel):
    """A question of a task, and its answer."""

    ordinal: int = Field(description="of its step")
    name: str
    prompt: str
    choices: list[str]
    waits: bool = Field(description="it can be decided now")
    asked_at: AwareDatetime
    asks: int = Field(description="how often it was asked; more than once: nobody decided in time")
    deadline: AwareDatetime | None = Field(description="then it pauses or cancels its task (on_timeout)")
    on_timeout: str
    deny: str = Field(description="cancel: a no ends the task; answer: its kind gets `denied`")
    verdict: str | None = Field(description="approve or deny; null: nobody has decided")
    choice: str | None = Field(description="what the kind gets")
    note: str
    decided_by: str | None
    decided_at: AwareDatetime | None
    waited_s: float = Field(description="on its own clock, which stops at the decision")
    notified_at: AwareDatetime | None = Field(description="when the tenant's hook took the notice")


class WaitingOut(ApprovalOut):
    """A question that waits, with its task."""

    task_id: uuid.UUID
    kind: str
    title: str
    priority: int
    links: Mapping[str, str]


class WaitingPage(BaseModel):
    """Questions that wait for a decision, the oldest first. Follow `next` until it is null."""

    items: list[WaitingOut]
    next: str | None


class AskedOut(BaseModel):
    """A task's questions, the newest first (at most 100)."""

    task_id: uuid.UUID
    items: list[ApprovalOut]


class DecidedOut(BaseModel):
    """What was done: `approved`, `denied` (the task is cancelled), `answered` (a no its kind wanted), `reasked`."""

    outcome: str
    choice: str | None
    task: TaskOut
