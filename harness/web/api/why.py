"""Why a task waits, over HTTP: what binds it now, since when, what would free it; and what it has waited for so far."""

import uuid
from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Router
from pydantic import AwareDatetime, BaseModel, Field

from harness.engine import why as engine_why
from harness.engine.why import Bound, Spent, Why
from harness.policy.reasons import AHEAD_MOST, Code, Fact, Who
from harness.store import queries
from harness.store.database import Connection
from harness.store.queries import TaskView
from harness.web.api import answers
from harness.web.api.auth import READ, caller_of
from harness.web.api.schemas import Problem
from harness.web.service import service

router = Router(tags=["tasks"])


class ReasonOut(BaseModel):
    """What holds a task. Of other tenants it tells nothing but how many they are."""

    code: Code
    subject: str = Field(description="which resource, pool or pause it is about, where there are several")
    who: Who = Field(description="who can free it: `you`, the `system` by itself, or another `person`")
    words: str
    frees: str = Field(description="what would free it")
    since: AwareDatetime | None = Field(description="since when it holds the task, or the line that the task stands in")
    facts: dict[str, str | int | float] = Field(
        description="the figures in its words; moments (names that end in `_s`) in epoch seconds"
    )


class SpentOut(BaseModel):
    """Time that a reason took."""

    code: Code
    subject: str
    label: str
    who: Who
    seconds: float


class WhyOut(BaseModel):
    """Why a task waits. `reason` is null when it doesn't."""

    task_id: uuid.UUID
    state: str
    reason: ReasonOut | None = Field(description="of all that holds it, what binds first")
    others: list[ReasonOut] = Field(description="what else holds it: the holds of a paused task")
    waits_since: AwareDatetime | None
    ahead: int = Field(
        description=f"your own tasks before it in its line; {AHEAD_MOST + 1} says: more than {AHEAD_MOST}"
    )
    waited_s: float = Field(description="all that it has waited since it was sent (again), running time left out")
    spent: list[SpentOut] = Field(description="the same by reason, longest first")
    whole: bool = Field(description="false: its trace is so long that its oldest waits aren't counted")


@router.get(
    "/{uuid:task_id}/why",
    auth=READ,
    response={200: WhyOut, (401, 403, 404, 503): Problem},
    summary="Read why a task waits",
)
async def why(request: HttpRequest, task_id: uuid.UUID) -> HttpResponse:
    """Read what holds a task, since when, what would free it, and the time that each reason has taken.

    The line's reasons are looked at about once a second.
    """
    caller = caller_of(request)
    serving = service()

    def look(connection: Connection) -> HttpResponse:
        with queries.as_tenant(connection, caller.tenant.id):
            task = queries.the_task(connection, task_id)
            return answers.answer(why_out(task, engine_why.why(connection, task)))

    return await serving.on_thread(lambda: serving.with_connection(look))


def why_out(task: TaskView, found: Why) -> WhyOut:
    """Return the answer."""
    reasons = [_reason_out(one) for one in found.bound]
    return WhyOut(
        task_id=task.public_id,
        state=task.state,
        reason=reasons[0] if reasons else None,
        others=reasons[1:],
        waits_since=found.waits_since,
        ahead=found.ahead,
        waited_s=round(found.waited_s, 3),
        spent=[_spent_out(one) for one in found.spent],
        whole=found.whole,
    )


def _reason_out(bound: Bound) -> ReasonOut:
    facts: dict[str, Any] = {n: v for n, v in (bound.reason.facts or {}).items() if _said(v)}
    return ReasonOut(
        code=bound.reason.code,
        subject=bound.reason.subject,
        who=bound.reason.who,
        words=bound.told.words,
        frees=bound.told.frees,
        since=bound.since,
        facts=facts,
    )


def _said(value: Fact | None) -> bool:
    return value is not None and value != ""


def _spent_out(spent: Spent) -> SpentOut:
    return SpentOut(
        code=spent.code,
        subject=spent.subject,
        label=spent.label,
        who=spent.who,
        seconds=round(spent.seconds, 3),
    )
