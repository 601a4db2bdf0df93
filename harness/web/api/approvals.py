"""Questions to people over HTTP: those that wait, a task's own, the verbs on them, and links for who has no key."""

import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router

from harness.engine import approve, expect
from harness.engine.approve import Answered, Link, links
from harness.policy.approvals import waits
from harness.policy.errors import Conflict
from harness.store import approvals, queries
from harness.store.approvals import Approval, Asked
from harness.store.database import Connection
from harness.web.api import answers, documents, reading
from harness.web.api.approval_schemas import (
    ApprovalOut,
    ApproveIn,
    AskedOut,
    DecidedOut,
    DenyIn,
    LinkIn,
    LinkOut,
    WaitingOut,
    WaitingPage,
)
from harness.web.api.auth import READ, WRITE, caller_of
from harness.web.api.schemas import Problem
from harness.web.service import service

of_tasks = Router(tags=["approvals"])
router = Router(tags=["approvals"])

PAGE_MAX = 200
OF_TASK_MOST = 100
_SAID: Mapping[str, tuple[str, str]] = {
    "approve": (
        "Approve what a task asks",
        (
            "Say yes with one of the choices. The task goes on when a slot is free. Decided or not asked: 409, "
            "with whom and when."
        ),
    ),
    "deny": (
        "Deny what a task asks",
        (
            "Say no: the task is cancelled (`denied`) or, where its kind wants that, gets the answer (`answered`). "
            "Decided already, or not asked: 409."
        ),
    ),
    "reask": (
        "Ask again",
        "Ask again what nobody decided in time: the task waits for a decision anew. Another: 409.",
    ),
}


@router.get(
    "",
    auth=READ,
    response={200: WaitingPage, (401, 403, 422, 503): Problem},
    summary="List what waits for a decision",
)
async def list_waiting(
    request: HttpRequest,
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = 50,
    cursor: Annotated[str | None, Query()] = None,
) -> HttpResponse:
    """List the questions of your tasks that wait for a decision, the oldest first."""
    answers.only(request, "limit", "cursor")
    caller = caller_of(request)
    serving = service()
    after = 0 if cursor is None else answers.position(cursor)

    def look(connection: Connection) -> HttpResponse:
        with queries.as_tenant(connection, caller.tenant.id) as now:
            found = approvals.page(connection, caller.tenant.id, after=after, most=limit)
        following = answers.cursor(found[-1].approval.id) if len(found) == limit else None
        return answers.answer(WaitingPage(items=[_waiting(one, now) for one in found], next=following))

    return await serving.on_thread(lambda: serving.with_connection(look))


@of_tasks.get(
    "/{uuid:task_id}/approvals",
    auth=READ,
    response={200: AskedOut, (401, 403, 404, 503): Problem},
    summary="Read what a task asked",
)
async def of_task(request: HttpRequest, task_id: uuid.UUID) -> HttpResponse:
    """Read the questions of one task with their answers, the newest first."""
    caller = caller_of(request)
    serving = service()

    def look(connection: Connection) -> HttpResponse:
        with queries.as_tenant(connection, caller.tenant.id) as now:
            task = queries.the_task(connection, task_id)
            found = approvals.of_task(connection, task.id, most=OF_TASK_MOST)
        items = [ApprovalOut(**_members(one, task.state, now)) for one in found]
        return answers.answer(AskedOut(task_id=task_id, items=items))

    return await serving.on_thread(lambda: serving.with_connection(look))


@of_tasks.post(
    "/{uuid:task_id}/approval-link",
    auth=WRITE,
    response={200: LinkOut, (400, 401, 403, 404, 409, 413, 422, 503): Problem},
    openapi_extra=documents.body(LinkIn),
    summary="Make a link to decide by",
)
async def make_link(request: HttpRequest, task_id: uuid.UUID) -> HttpResponse:
    """Make a signed link to a page where whoever has it can decide what the task asks now, once, without a key."""
    caller = caller_of(request)
    serving = service()

    def work() -> HttpResponse:
        asked = reading.read(reading.body_of(request), LinkIn)

        def look(connection: Connection) -> HttpResponse:
            with queries.as_tenant(connection, caller.tenant.id) as now:
                task = queries.the_task(connection, task_id)
                found = approvals.last(connection, task.id)
            if found is None or not waits(task.state, is_open=found.open):
                raise Conflict(
                    "the task doesn't wait for a decision, so there is nothing to link to",
                    task_id=str(task_id),
                    state=task.state,
                )
            link = Link(approval=found.id, asks=found.asks, tenant=caller.tenant.id, label=asked.for_)
            text = links.made(link, now=now, life_s=asked.valid_s)
            url = links.address(text, base=request.build_absolute_uri("/"))
            return answers.answer(LinkOut(url=url, expires_at=answers.utc(now + timedelta(seconds=asked.valid_s))))

        return serving.with_connection(look)

    return await serving.on_thread(work)


def _route(name: str, model: type[DenyIn], act: Callable[..., Answered]) -> None:
    summary, description = _SAID[name]

    async def decide(request: HttpRequest, task_id: uuid.UUID) -> HttpResponse:
        caller = caller_of(request)
        serving = service()

        def work() -> HttpResponse:
            said = reading.read(reading.body_of(request), model, empty=True).model_dump()

            def do(connection: Connection) -> HttpResponse:
                done = act(connection, task_id, tenant=caller.tenant.id, actor=caller.actor, **said)
                with queries.as_tenant(connection, caller.tenant.id):
                    task = queries.the_task(connection, task_id)
                    eta = expect.of_tasks(connection, [task]).get(task.id)
                return answers.answer(
                    DecidedOut(outcome=done.outcome, choice=done.choice, task=answers.task_out(task, eta))
                )

            return serving.with_connection(do)

        return await serving.on_thread(work)

    register: Callable[..., object] = of_tasks.post(
        f"/{{uuid:task_id}}/{name}",
        auth=WRITE,
        response={200: DecidedOut, (400, 401, 403, 404, 409, 413, 422, 503): Problem},
        openapi_extra=documents.body(model, required=False),
        operation_id=f"{name}_task",
        summary=summary,
        description=description,
    )
    register(decide)


_route("approve", ApproveIn, approve.approve)
_route("deny", DenyIn, approve.deny)
_route("reask", DenyIn, approve.reask)


def _waiting(one: Asked, now: datetime) -> WaitingOut:
    return WaitingOut(
        **_members(one.approval, one.state, now),
        task_id=one.task_id,
        kind=one.kind,
        title=one.title or "",
        priority=one.priority,
        links=answers.task_links(one.task_id),
    )


def _members(one: Approval, state: str, now: datetime) -> dict[str, Any]:
    waiting = waits(state, is_open=one.open)
    running_s = max(0.0, (now - one.asked_at).total_seconds()) if waiting else 0.0
    return {
        "ordinal": one.ordinal,
        "name": one.name,
        "prompt": one.prompt,
        "choices": one.choices,
        "waits": waiting,
        "asked_at": one.asked_at.astimezone(UTC),
        "asks": one.asks,
        "deadline": answers.utc(one.deadline),
        "on_timeout": one.on_timeout,
        "deny": one.deny,
        "verdict": one.verdict,
        "choice": one.choice,
        "note": one.note,
        "decided_by": one.decided_by,
        "decided_at": answers.utc(one.decided_at),
        "waited_s": round(one.waited_s + running_s, 3),
        "notified_at": answers.utc(one.notified_at),
    }
