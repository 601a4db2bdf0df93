"""What the API gives about steps, as pydantic models."""

import uuid
from typing import Any

from pydantic import AwareDatetime, BaseModel, Field


class StepLast(BaseModel):
    """One of the last steps of a task. `key`: of parallel ones, its line; `finished_at` null: it hasn't finished."""

    ordinal: int = Field(description="in which order the steps began first, from 1")
    name: str
    key: str
    began_at: AwareDatetime = Field(description="the last time that it began")
    finished_at: AwareDatetime | None
    begun: int = Field(description="how often it began; more than once: attempts ended inside it")


class StepOut(StepLast):
    """A step."""

    result_bytes: int | None = Field(description="of the result as JSON; null: there is none yet")
    differs: bool = Field(description="a worker came to another step here: its code isn't the one that began the task")


class StepWhole(StepOut):
    """A step with what it returned."""

    result: Any = None


class StepPage(BaseModel):
    """A task's steps, in order. Follow `next` until it is null."""

    task_id: uuid.UUID
    items: list[StepOut]
    next: str | None = Field(description="the cursor of the next page; null: there is none")


class StepsSoFar(BaseModel):
    """How far a task has come: `finished` of the steps that have `begun`, and the one that it is in."""

    finished: int
    begun: int
    current: str | None = Field(description="a step that has begun and not finished; of parallel ones, the last")
