"""A task's steps over HTTP: how far it is, and what each returned."""

import json
import uuid
from typing import Annotated

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router

from harness.policy.errors import NotFound
from harness.store import queries
from harness.store import steps as stored
from harness.store.database import Connection
from harness.store.steps import StepView
from harness.web.api import answers
from harness.web.api.auth import READ, caller_of
from harness.web.api.schemas import Problem
from harness.web.api.step_schemas import StepOut, StepPage, StepWhole
from harness.web.service import service

router = Router(tags=["tasks"])

PAGE_MAX = 200
LAST_ORDINAL = 2**31 - 1


@router.get(
    "/{uuid:task_id}/steps",
    auth=READ,
    response={200: StepPage, (401, 403, 404, 422, 503): Problem},
    summary="List a task's steps",
)
async def list_steps(
    request: HttpRequest,
    task_id: uuid.UUID,
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = 50,
    cursor: Annotated[str | None, Query()] = None,
) -> HttpResponse:
    """List what a task has done and is doing, step by step, in the order in which the steps began first."""
    answers.only(request, "limit", "cursor")
    caller = caller_of(request)
    serving = service()
    after = 0 if cursor is None else min(answers.position(cursor), LAST_ORDINAL)

    def look(connection: Connection) -> HttpResponse:
        with queries.as_tenant(connection, caller.tenant.id):
            found = stored.page(connection, queries.the_task(connection, task_id).id, after=after, most=limit)
        following = answers.cursor(found[-1].ordinal) if len(found) == limit else None
        return answers.answer(
            StepPage(task_id=task_id, items=[StepOut(**_members(one)) for one in found], next=following)
        )

    return await serving.on_thread(lambda: serving.with_connection(look))


@router.get(
    "/{uuid:task_id}/steps/{int:ordinal}",
    auth=READ,
    response={200: StepWhole, (401, 403, 404, 422, 503): Problem},
    summary="Read a step",
)
async def read(request: HttpRequest, task_id: uuid.UUID, ordinal: int) -> HttpResponse:
    """Read one step with its result."""
    caller = caller_of(request)
    serving = service()

    def look(connection: Connection) -> HttpResponse:
        with queries.as_tenant(connection, caller.tenant.id):
            task = queries.the_task(connection, task_id).id
            found = stored.page(connection, task, after=ordinal - 1, most=1) if 0 < ordinal <= LAST_ORDINAL else []
            if not found or found[0].ordinal != ordinal:
                raise NotFound(f"task {task_id} has no step {ordinal}")
            text = stored.result(connection, task, ordinal)
        return answers.answer(StepWhole(**_members(found[0]), result=None if text is None else json.loads(text)))

    return await serving.on_thread(lambda: serving.with_connection(look))


def _members(one: StepView) -> dict[str, object]:
    return {
        "ordinal": one.ordinal,
        "name": one.name,
        "key": one.key,
        "began_at": answers.utc(one.began_at),
        "finished_at": answers.utc(one.finished_at),
        "begun": one.begun,
        "result_bytes": one.result_bytes,
        "differs": one.differs,
    }
