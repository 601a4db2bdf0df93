"""How much pressure there is: the level and since when. Nothing of what it is measured from, and nobody's figures."""

from datetime import UTC, datetime
from typing import Literal

from django.http import HttpRequest, HttpResponse
from ninja import Router
from pydantic import BaseModel, Field

from harness.policy.pressure import Level
from harness.store import pressure
from harness.store.database import Connection
from harness.store.pressure import STALE_S
from harness.web.api import answers
from harness.web.api.auth import READ
from harness.web.api.schemas import Problem
from harness.web.service import service

router = Router(tags=["pressure"])


class PressureOut(BaseModel):
    """The level of pressure. While nobody evaluates it the last one holds, and `stale` says so."""

    level: Literal["normal", "elevated", "high", "critical"]
    since: datetime | None = Field(description="null: nobody has evaluated it yet")
    seen_at: datetime | None = Field(description="when it was last evaluated; every 5 s as a rule")
    stale: bool = Field(description="it was last evaluated more than 30 s ago")


@router.get("", auth=READ, response={200: PressureOut, (401, 403, 503): Problem}, summary="Read the level of pressure")
async def read(request: HttpRequest) -> HttpResponse:
    """Read how much pressure there is now."""
    answers.only(request)
    serving = service()
    return await serving.on_thread(lambda: serving.with_connection(_look))


def _look(connection: Connection) -> HttpResponse:
    found = pressure.now(connection)
    if found is None:
        return answers.answer(PressureOut(level="normal", since=None, seen_at=None, stale=True))
    return answers.answer(
        PressureOut(
            level=_word(found.level),
            since=datetime.fromtimestamp(found.since_s, UTC),
            seen_at=datetime.fromtimestamp(found.seen_s, UTC),
            stale=found.now_s - found.seen_s > STALE_S,
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
