"""How far forecasts hold, over HTTP: when the last ones were made, and how earlier ones were borne out."""

from django.http import HttpRequest, HttpResponse
from ninja import Router
from pydantic import AwareDatetime, BaseModel, Field

from harness.engine import expect
from harness.policy.eta import Trust
from harness.store import forecasts
from harness.store.database import Connection
from harness.web.api import answers
from harness.web.api.auth import READ
from harness.web.api.schemas import Problem
from harness.web.service import service

router = Router(tags=["forecasts"])


class ForecastsOut(BaseModel):
    """The last pass and how forecasts are borne out, over all tenants: by a task's first one and its first start.

    One that still waits beyond its P90 counts as a miss at once.
    """

    trust: Trust
    words: str
    at: AwareDatetime | None
    age_s: float | None
    stale: bool = Field(description="the last pass is older than a minute, so no forecast is shown")
    took_s: float | None = Field(description="seconds of a core")
    waiting: int | None = Field(description="tasks that wait, as far as they are counted")
    looked_at: int | None = Field(description="tasks that the pass tells of")
    n: int = Field(description="forecasts judged, the last 200 at most")
    p50_covers: float | None = Field(description="share that started before the P50 shown; should be 0.5")
    p90_covers: float | None = Field(description="share that started before the P90 shown; should be 0.9")
    spread: float | None = Field(description="median of P90 / P50")
    pinball_s: float | None = Field(description="mean pinball loss over both, in seconds")
    pinball_ratio: float | None = Field(description="that over the loss of backlog / rate")


@router.get(
    "", auth=READ, response={200: ForecastsOut, (401, 403, 503): Problem}, summary="Read how far forecasts hold"
)
async def read(request: HttpRequest) -> HttpResponse:
    """Read when the last forecasts were made, and how earlier ones were borne out."""
    answers.only(request)
    serving = service()
    return await serving.on_thread(lambda: serving.with_connection(_look))


def _look(connection: Connection) -> HttpResponse:
    return answers.answer(ForecastsOut(**expect.published(forecasts.last_pass(connection))))
