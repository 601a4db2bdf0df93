"""Schedules over HTTP: make, list, read, change, pause, resume, delete. Their tasks: /api/v1/tasks?schedule=.."""

import uuid
from collections.abc import Callable
from datetime import datetime
from itertools import islice
from typing import Annotated

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router

from harness.engine import schedules as engine
from harness.policy import schedule as policy
from harness.policy.errors import NotFound
from harness.store import queries, schedules
from harness.store.database import Connection
from harness.store.keys import Caller
from harness.store.schedules import ScheduleView
from harness.web.api import answers, documents, reading
from harness.web.api.auth import READ, WRITE, caller_of
from harness.web.api.schedule_schemas import PauseIn, ScheduleChange, ScheduleIn, ScheduleOut, SchedulePage
from harness.web.api.schemas import Problem
from harness.web.service import Service, service

router = Router(tags=["schedules"])

PAGE_MAX = 200
UPCOMING = 5


@router.post(
    "",
    auth=WRITE,
    response={201: ScheduleOut, (400, 401, 403, 409, 413, 422, 429, 503): Problem},
    openapi_extra=documents.body(ScheduleIn),
    summary="Make a schedule",
)
async def create(request: HttpRequest) -> HttpResponse:
    """Make a schedule: kind, input, expression and zone are checked now, kind and input again when it fires."""
    caller = caller_of(request)
    serving = service()

    def work() -> HttpResponse:
        asked = reading.read(reading.body_of(request), ScheduleIn)
        wanted = engine.ScheduleRequest(
            **asked.model_dump(exclude={"input", "tags", "enabled"}), input=asked.input, tags=tuple(asked.tags)
        )

        def make(connection: Connection) -> HttpResponse:
            made = engine.create(
                connection,
                caller.tenant,
                wanted,
                body_max_bytes=serving.door.body_max_bytes,
                enabled=asked.enabled,
                author=caller.actor,
            )
            return _shown(connection, caller, made, status=201)

        return serving.with_connection(make)

    return await serving.on_thread(work)


@router.get("", auth=READ, response={200: SchedulePage, (401, 403, 422, 503): Problem}, summary="List schedules")
async def list_schedules(
    request: HttpRequest,
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = 50,
    cursor: Annotated[str | None, Query()] = None,
) -> HttpResponse:
    """List schedules, oldest first."""
    answers.only(request, "limit", "cursor")
    caller = caller_of(request)
    serving = service()
    after = 0 if cursor is None else answers.position(cursor)

    def look(connection: Connection) -> HttpResponse:
        with queries.as_tenant(connection, caller.tenant.id):
            found = schedules.page(connection, tenant=caller.tenant.id, after=after, most=limit)
        following = answers.cursor(found[-1].id) if len(found) == limit else None
        return answers.answer(SchedulePage(items=[_out(one) for one in found], next=following))

    return await serving.on_thread(lambda: serving.with_connection(look))


@router.get(
    "/{uuid:schedule_id}",
    auth=READ,
    response={200: ScheduleOut, (401, 403, 404, 503): Problem},
    summary="Read a schedule",
)
async def read(request: HttpRequest, schedule_id: uuid.UUID) -> HttpResponse:
    """Read a schedule with its next moments."""
    return await _done(request, schedule_id, lambda *_: None)


@router.patch(
    "/{uuid:schedule_id}",
    auth=WRITE,
    response={200: ScheduleOut, (400, 401, 403, 404, 409, 413, 422, 503): Problem},
    openapi_extra=documents.body(ScheduleChange),
    summary="Change a schedule",
)
async def change(request: HttpRequest, schedule_id: uuid.UUID) -> HttpResponse:
    """Change what is given. With another cron or zone it begins anew from now; a paused one stays paused."""

    def act(connection: Connection, caller: Caller, serving: Service) -> None:
        asked = reading.read(reading.body_of(request), ScheduleChange)
        changes = {name: getattr(asked, name) for name in asked.model_fields_set}
        if "tags" in changes:
            changes["tags"] = tuple(changes["tags"])
        engine.change(connection, caller.tenant, schedule_id, changes, body_max_bytes=serving.door.body_max_bytes)

    return await _done(request, schedule_id, act)


@router.post(
    "/{uuid:schedule_id}/pause",
    auth=WRITE,
    response={200: ScheduleOut, (400, 401, 403, 404, 413, 422, 503): Problem},
    openapi_extra=documents.body(PauseIn, required=False),
    summary="Pause a schedule",
)
async def pause(request: HttpRequest, schedule_id: uuid.UUID) -> HttpResponse:
    """Stop it until it is resumed. Tasks that it has brought go on."""

    def act(connection: Connection, caller: Caller, serving: Service) -> None:
        asked = reading.read(reading.body_of(request), PauseIn, empty=True)
        engine.pause(connection, caller.tenant, schedule_id, reason=asked.reason)

    return await _done(request, schedule_id, act)


@router.post(
    "/{uuid:schedule_id}/resume",
    auth=WRITE,
    response={200: ScheduleOut, (401, 403, 404, 413, 422, 503): Problem},
    summary="Resume a schedule",
)
async def resume(request: HttpRequest, schedule_id: uuid.UUID) -> HttpResponse:
    """Let it go on from now; what it missed while it was paused is not caught up. Kind and input are checked anew."""

    def act(connection: Connection, caller: Caller, serving: Service) -> None:
        engine.resume(connection, caller.tenant, schedule_id, body_max_bytes=serving.door.body_max_bytes)

    return await _done(request, schedule_id, act)


@router.delete(
    "/{uuid:schedule_id}",
    auth=WRITE,
    response={204: None, (401, 403, 404, 503): Problem},
    summary="Delete a schedule",
)
async def delete(request: HttpRequest, schedule_id: uuid.UUID) -> HttpResponse:
    """Delete it. The tasks that it has brought stay, and still name it."""
    caller = caller_of(request)
    serving = service()

    def remove(connection: Connection) -> HttpResponse:
        engine.delete(connection, caller.tenant, schedule_id)
        return HttpResponse(status=204)

    return await serving.on_thread(lambda: serving.with_connection(remove))


async def _done(
    request: HttpRequest, schedule_id: uuid.UUID, act: Callable[[Connection, Caller, Service], None]
) -> HttpResponse:
    """Do something with a schedule, and show it."""
    caller = caller_of(request)
    serving = service()

    def work(connection: Connection) -> HttpResponse:
        act(connection, caller, serving)
        return _shown(connection, caller, schedule_id)

    return await serving.on_thread(lambda: serving.with_connection(work))


def _shown(connection: Connection, caller: Caller, schedule_id: uuid.UUID, *, status: int = 200) -> HttpResponse:
    with queries.as_tenant(connection, caller.tenant.id):
        found = schedules.one(connection, schedule_id)
    if found is None:
        raise NotFound(f"there is no schedule {schedule_id}")
    return answers.answer(_out(found), status)


def _out(view: ScheduleView) -> ScheduleOut:
    at = f"{answers.ROOT}/schedules/{view.public_id}"
    next_at = view.next_at if view.enabled else None
    return ScheduleOut(
        schedule_id=view.public_id,
        name=view.name,
        kind=view.kind,
        input=view.input,
        cron=view.cron,
        zone=view.zone,
        catch_up=view.catch_up,
        priority=view.priority,
        ttl_s=view.ttl_s,
        title=view.title,
        tags=view.tags,
        enabled=view.enabled,
        stopped_because=view.stopped_because,
        next_at=answers.utc(next_at),
        upcoming=_upcoming(view, next_at) if next_at else [],
        last_fired_at=answers.utc(view.last_fired_at),
        last_task_id=view.last_task,
        fired=view.fired,
        author=view.author,
        created_at=answers.utc(view.created_at),
        changed_at=answers.utc(view.changed_at),
        links={
            "self": at,
            "pause": f"{at}/pause",
            "resume": f"{at}/resume",
            "tasks": f"{answers.ROOT}/tasks?schedule={view.public_id}",
        },
    )


def _upcoming(view: ScheduleView, next_at: datetime) -> list[datetime]:
    moments = islice(policy.moments(view.cron, view.zone, next_at.timestamp() - 1), UPCOMING)
    return [datetime.fromtimestamp(moment_s, policy.zone_info(view.zone)) for moment_s in moments]
