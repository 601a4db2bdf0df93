"""Links to pages for people over HTTP: what a program gives to whoever waits for its task or run."""

import uuid
from datetime import timedelta
from typing import Literal

from django.http import HttpRequest, HttpResponse
from ninja import Router
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from harness.policy.errors import NotFound
from harness.store import queries
from harness.store.database import Connection
from harness.web.api import answers, documents, reading
from harness.web.api.auth import WRITE, caller_of
from harness.web.api.schemas import Problem
from harness.web.pages import shared
from harness.web.pages.shared import LABEL_MOST_CHARS, LIFE_MOST_S, LIFE_S, PageLink
from harness.web.service import service

of_tasks = Router(tags=["tasks"])
of_runs = Router(tags=["runs"])


class PageLinkIn(BaseModel):
    """Whom a link is for, what it lets them do, and how long it is good."""

    model_config = ConfigDict(extra="forbid")

    for_: str = Field(
        alias="for", min_length=1, max_length=LABEL_MOST_CHARS, description="who will get it; stays with what they do"
    )
    acts: bool = Field(default=False, strict=True, description="they may press buttons: decide, cancel, send again")
    valid_s: float = Field(default=LIFE_S, gt=0, le=LIFE_MOST_S, allow_inf_nan=False, description="seconds from now")


class PageLinkOut(BaseModel):
    """A link: whoever has it sees the page, with what belongs to it."""

    url: str
    expires_at: AwareDatetime


@of_tasks.post(
    "/{uuid:task_id}/page-link",
    auth=WRITE,
    response={200: PageLinkOut, (400, 401, 403, 404, 413, 422, 503): Problem},
    openapi_extra=documents.body(PageLinkIn),
    summary="Make a link to a task's page",
)
async def of_task(request: HttpRequest, task_id: uuid.UUID) -> HttpResponse:
    """Make a signed link to the page of a task, its result, its files and its children, for people without a login."""
    return await _made(request, "task", task_id)


@of_runs.post(
    "/{uuid:run_id}/page-link",
    auth=WRITE,
    response={200: PageLinkOut, (400, 401, 403, 404, 413, 422, 503): Problem},
    openapi_extra=documents.body(PageLinkIn),
    summary="Make a link to a run's page",
)
async def of_run(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """Make a signed link to the page of a run, and to those of its tasks, for people without a login."""
    return await _made(request, "run", run_id)


async def _made(request: HttpRequest, what: Literal["task", "run"], public_id: uuid.UUID) -> HttpResponse:
    caller = caller_of(request)
    serving = service()

    def work() -> HttpResponse:
        asked = reading.read(reading.body_of(request), PageLinkIn)

        def look(connection: Connection) -> HttpResponse:
            with queries.as_tenant(connection, caller.tenant.id) as now:
                if what == "task":
                    queries.the_task(connection, public_id)
                elif queries.run_and_tenant(connection, public_id) is None:
                    raise NotFound(f"there is no run {public_id}")
            link = PageLink(tenant=caller.tenant.id, what=what, public_id=public_id, acts=asked.acts, label=asked.for_)
            text = shared.made(link, now=now, life_s=asked.valid_s)
            url = shared.address(text, link, base=request.build_absolute_uri("/"))
            return answers.answer(PageLinkOut(url=url, expires_at=answers.utc(now + timedelta(seconds=asked.valid_s))))

        return serving.with_connection(look)

    return await serving.on_thread(work)
