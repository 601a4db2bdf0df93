"""How much pressure there is: the level and since when, and what was refused of the caller's own.

Nothing of what the level is measured from, and nobody else's figures.
"""

from datetime import UTC, datetime
from typing import Literal

from django.http import HttpRequest, HttpResponse
from ninja import Router
from pydantic import BaseModel, Field

from harness.engine import submit
from harness.policy.pressure import Level
from harness.store import door, pressure, queries
from harness.store.database import Connection
from harness.store.pressure import STALE_S
from harness.web.api import answers
from harness.web.api.auth import READ, caller_of
from harness.web.api.schemas import Problem
from harness.web.service import service

router = Router(tags=["pressure"])

REFUSED_MINUTES = 10
REFUSED_MOST = 200


class RefusedOut(BaseModel):
    """Tasks of yours that were answered alike within a minute."""

    minute: datetime
    priority: int
    code: str = Field(description="deferred, or that of the error: overload, over_quota, budget_exceeded, forbidden")
    reason: str = Field(description="pressure, deadline, start_by, or the code again")
    tasks: int


class PressureOut(BaseModel):
    """The level of pressure. While nobody evaluates it the last one holds, and `stale` says so."""

    level: Literal["normal", "elevated", "high", "critical"]
    since: datetime | None = Field(description="null: nobody has evaluated it yet")
    seen_at: datetime | None = Field(description="when it was last evaluated; every 5 s as a rule")
    stale: bool = Field(description="it was last evaluated more than 30 s ago")
    refused: list[RefusedOut] = Field(description="your tasks that were refused or deferred in the last 10 minutes")


@router.get("", auth=READ, response={200: PressureOut, (401, 403, 503): Problem}, summary="Read the level of pressure")
async def read(request: HttpRequest) -> HttpResponse:
    """Read how much pressure there is now."""
    answers.only(request)
    serving = service()
    caller = caller_of(request)

    def look(connection: Connection) -> HttpResponse:
        submit.tell(serving.door, connection, at_once=True)
        with queries.as_tenant(connection, caller.tenant.id):
            refused = door.told(connection, minutes=REFUSED_MINUTES, most=REFUSED_MOST)
        told = [
            RefusedOut(
                minute=answers.utc(one.minute),
                priority=one.priority,
                code=one.code,
                reason=one.reason,
                tasks=one.tasks,
            )
            for one in refused
        ]
        return _look(connection, told)

    return await serving.on_thread(lambda: serving.with_connection(look))


def _look(connection: Connection, refused: list[RefusedOut]) -> HttpResponse:
    found = pressure.now(connection)
    if found is None:
        return answers.answer(PressureOut(level="normal", since=None, seen_at=None, stale=True, refused=refused))
    return answers.answer(
        PressureOut(
            level=_word(found.level),
            since=datetime.fromtimestamp(found.since_s, UTC),
            seen_at=datetime.fromtimestamp(found.seen_s, UTC),
            stale=found.now_s - found.seen_s > STALE_S,
            refused=refused,
        )
    )


def _word(level: Level) -> Literal["normal", "elevated", "high", "critical"]:
    match level:
        case Level.NORMAL:
            return "normal"
        case Level.ELEVATED:
            return "elevated"
        case Level.HIGH:
            return "high"
        case Level.CRITICAL:
            return "critical"
