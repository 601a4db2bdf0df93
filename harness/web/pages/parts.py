"""What belongs to a task beside its page: its whole result, its files, its whole trace, and links to share it."""

import uuid
from datetime import UTC, datetime, timedelta

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from harness.policy.errors import NotFound
from harness.store import artifacts, queries
from harness.store.artifacts import ArtifactView
from harness.store.database import Connection
from harness.web.api.artifacts import served
from harness.web.pages import forms, opening, results, shared, shell, task_facts, times
from harness.web.pages.access import NotYours, Viewer
from harness.web.pages.opening import Opened
from harness.web.pages.shared import PageLink
from harness.web.pages.shell import page

TRACE_PAGE = 200
SHARE_S = 86_400.0


@page
async def result(request: HttpRequest, viewer: Viewer, task_id: uuid.UUID) -> HttpResponseBase:
    """The whole result, as a file to keep."""
    tenant = await opening.tenant_of_task(viewer, task_id)
    opened = await _opened(viewer, task_id, tenant)
    return HttpResponse(
        results.as_json(opened.task.output),
        content_type="application/json; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{task_id}.json"'},
    )


@page
async def file(request: HttpRequest, viewer: Viewer, task_id: uuid.UUID, artifact_id: uuid.UUID) -> HttpResponseBase:
    """A file that the task made: a picture to be shown, anything else to be kept."""
    tenant = await opening.tenant_of_task(viewer, task_id)

    def look(connection: Connection) -> ArtifactView:
        opening.opened(connection, viewer, task_id)
        found = artifacts.one(connection, tenant, artifact_id)
        if found.task != task_id:
            raise NotFound("the task made no such file")
        return found

    found = await shell.reading(look, tenant=tenant)
    answer = await served(request, found, inline=found.content_type in results.PICTURES)
    answer["X-Content-Type-Options"] = "nosniff"
    return answer


@page
async def trace(request: HttpRequest, viewer: Viewer, task_id: uuid.UUID) -> HttpResponseBase:
    """The trace, the newest first, a page at a time."""
    tenant = await opening.tenant_of_task(viewer, task_id)
    text = request.GET.get("before", "")
    before = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else queries.LAST_SEQ

    def look(connection: Connection) -> tuple[Opened, list[queries.EventView]]:
        opened = opening.opened(connection, viewer, task_id)
        return opened, queries.last_trace(connection, opened.task.id, before=before, most=TRACE_PAGE)

    opened, events = await shell.reading(look, tenant=tenant)
    now = datetime.now(UTC)
    name = opened.task.title or opened.task.kind
    facts = {
        "name": name,
        "back": viewer.task_path(task_id),
        "trace": [task_facts.event_row(one, now) for one in events],
        "older": f"{viewer.task_path(task_id)}trace?before={events[-1].seq}" if len(events) == TRACE_PAGE else "",
    }
    return shell.answer("harness/pages/trace.html", facts, viewer, title=f"Trace · {name[:60]}")


@page
async def share(request: HttpRequest, viewer: Viewer, task_id: uuid.UUID) -> HttpResponseBase:
    """A link to the task's page that shows it, and changes nothing, for a day. Making one twice does no harm."""
    if not viewer.may_act or viewer.link is not None:
        raise NotYours("you may look at this task, and not share it")
    tenant = await opening.tenant_of_task(viewer, task_id)
    opened = await _opened(viewer, task_id, tenant)
    now = datetime.now(UTC)
    if request.method == "POST":
        forms.read(viewer, request.POST.get(forms.FIELD, ""), begins=f"share task {task_id}", now=now)
    acts = request.POST.get("acts") == "yes"
    link = PageLink(tenant=tenant, what="task", public_id=task_id, acts=acts, label=f"{viewer.name}’s guest"[:60])
    name = opened.task.title or opened.task.kind
    facts: dict[str, object] = {
        "name": name,
        "back": viewer.task_path(task_id),
        "token": forms.token(viewer, f"share task {task_id}", now=now),
        "until": times.clock(now + timedelta(seconds=SHARE_S), now),
    }
    if request.method == "POST":
        text = shared.made(link, now=now, life_s=SHARE_S)
        facts["address"] = shared.address(text, link, base=request.build_absolute_uri("/"))
        facts["acts"] = acts
    return shell.answer("harness/pages/share.html", facts, viewer, title=f"Share · {name[:60]}")


async def _opened(viewer: Viewer, task_id: uuid.UUID, tenant: int) -> Opened:
    return await shell.reading(lambda connection: opening.opened(connection, viewer, task_id), tenant=tenant)
