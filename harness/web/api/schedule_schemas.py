"""What the API takes and gives of schedules."""

import uuid
from collections.abc import Mapping
from typing import Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from harness.engine.schedules import NAME_MAX_CHARS, REASON_MAX_CHARS
from harness.policy.schedule import CRON_MAX_CHARS, CatchUp
from harness.policy.terms import TITLE_MAX_CHARS
from harness.web.api.schemas import Priority, Seconds, Tags

_CRON = "five fields: minute hour day-of-month month day-of-week, as in `30 6 * * MON-FRI`"
_ZONE = "the IANA time zone whose clock the expression goes by"
_CATCH_UP = "what an outage missed: `skip` it, bring `one` task for all of it, or `all` of it (the newest 100)"


class ScheduleIn(BaseModel):
    """A task to bring again and again."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, max_length=NAME_MAX_CHARS, description="unique within the tenant")
    kind: str = Field(max_length=200)
    input: Any = Field(description="the payload of each task; its schema is the kind's")
    cron: str = Field(max_length=CRON_MAX_CHARS, description=_CRON)
    zone: str = Field(default="UTC", max_length=80, description=_ZONE)
    catch_up: CatchUp = Field(default="one", description=_CATCH_UP)
    priority: Priority | None = None
    ttl_s: Seconds | None = Field(default=None, description="seconds from firing; without it: by priority")
    title: str = Field(default="", max_length=TITLE_MAX_CHARS)
    tags: Tags = []
    enabled: bool = Field(default=True, strict=True)


class ScheduleChange(BaseModel):
    """What to change; what isn't there stays. Another cron or zone begins anew from now."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(default="", min_length=1, max_length=NAME_MAX_CHARS)
    kind: str = Field(default="", max_length=200)
    input: Any = None
    cron: str = Field(default="", max_length=CRON_MAX_CHARS, description=_CRON)
    zone: str = Field(default="", max_length=80, description=_ZONE)
    catch_up: CatchUp = Field(default="one", description=_CATCH_UP)
    priority: Priority | None = None
    ttl_s: Seconds | None = None
    title: str = Field(default="", max_length=TITLE_MAX_CHARS)
    tags: Tags = []


class PauseIn(BaseModel):
    """Why to pause."""

    model_config = ConfigDict(extra="forbid")

    reason: str = Field(default="", max_length=REASON_MAX_CHARS)


class ScheduleOut(BaseModel):
    """A schedule. `stopped_because`: why it is paused, or why it couldn't fire last time."""

    schedule_id: uuid.UUID
    name: str
    kind: str
    input: Any
    cron: str
    zone: str
    catch_up: CatchUp
    priority: int | None
    ttl_s: float | None
    title: str
    tags: list[str]
    enabled: bool
    stopped_because: str | None
    next_at: AwareDatetime | None = Field(description="null: it is paused")
    upcoming: list[AwareDatetime] = Field(description="the next moments, in its zone")
    last_fired_at: AwareDatetime | None
    last_task_id: uuid.UUID | None
    fired: int = Field(description="how many tasks it has brought")
    author: str
    created_at: AwareDatetime
    changed_at: AwareDatetime
    links: Mapping[str, str]


class SchedulePage(BaseModel):
    """Schedules in the order made."""

    items: list[ScheduleOut]
    next: str | None = Field(description="the cursor of the next page; null: there is none")
