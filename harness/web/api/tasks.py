"""Tasks over HTTP: submit, read, list, trace. Bodies are read on a thread, not on the event loop."""

import uuid
from datetime import UTC, datetime
from functools import partial
from typing import Annotated

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router

from harness.engine import expect, submit
from harness.policy import admission, terms
from harness.policy.lifecycle import State
from harness.store import queries, search, steps
from harness.store.database import Connection
from harness.telemetry import traces
from harness.web.api import answers, costs, documents, reading
from harness.web.api.auth import READ, WRITE, caller_of
from harness.web.api.schemas import NodeIn, Problem, TaskIn, TaskMade, TaskPage, TaskWhole, Trace
from harness.web.service import service

router = Router(tags=["tasks"])

PAGE_MAX = 200
TRACE_PAGE_MAX = 1000


def request_of(one: TaskIn) -> submit.TaskRequest:
    """Return a task as the engine takes it."""
    node = one if isinstance(one, NodeIn) else None
    return submit.TaskRequest(
        kind=one.kind,
        input=one.input,
        priority=one.priority,
        not_before=one.not_before,
        start_by=one.start_by,
        deadline=one.deadline,
        ttl_s=one.ttl_s,
        title=one.title or (node.name if node else ""),
        tags=one.tags,
        degrade=one.degrade,
        name=node.name if node else "",
        depends_on=node.depends_on if node else (),
    )


@router.post(
    "",
    auth=WRITE,
    response={202: TaskMade, 200: TaskMade, (400, 401, 403, 409, 413, 422, 429, 503): Problem},
    openapi_extra=documents.body(TaskIn, idempotent=True),
    summary="Submit a task",
)
async def create(request: HttpRequest) -> HttpResponse:
    """Take a task: it is a row when 202 is sent. The same Idempotency-Key and body return the same task, with 200."""
    caller = caller_of(request)
    serving = service()
    key = request.headers.get("Idempotency-Key")

    def work() -> HttpResponse:
        one = request_of(reading.read(reading.body_of(request), TaskIn))
        checked = submit.check(serving.door, caller.tenant, [one], idempotency_key=key)

        def take(connection: Connection) -> HttpResponse:
            accepted = submit.commit(serving.door, connection, caller.tenant, checked, actor=caller.actor)
            (task_id,) = accepted.task_ids
            if accepted.existing:
                with queries.as_tenant(connection, caller.tenant.id):
                    return answers.answer(answers.task_made(queries.the_task(connection, task_id), existing=True))
            made = TaskMade(
                task_id=task_id,
                state=State.QUEUED,
                ready=not accepted.deferred and (one.not_before is None or one.not_before <= datetime.now(UTC)),
                admission="deferred" if accepted.deferred else "accepted",
                reason=accepted.reason or None,
                expected_start=answers.utc(accepted.expected_start),
                priority=admission.default_priority(caller.tenant) if one.priority is None else one.priority,
                start_by=answers.utc(accepted.start_by),
                existing=False,
                budget=costs.budget_out(accepted.standing),
                links=answers.task_links(task_id),
            )
            return costs.warned(answers.answer(made, 202), accepted.standing)

        with traces.request("POST /api/v1/tasks", request.headers.get("traceparent")):
            return serving.with_connection(take)

    return await serving.on_thread(work)


@router.get("", auth=READ, response={200: TaskPage, (401, 403, 422, 503): Problem}, summary="List tasks")
async def list_tasks(
    request: HttpRequest,
    state: Annotated[State | None, Query()] = None,
    kind: Annotated[str | None, Query(pattern=r"^[\w.:-]{1,200}$")] = None,
    run: Annotated[uuid.UUID | None, Query()] = None,
    priority: Annotated[int | None, Query(ge=0, le=3)] = None,
    tag: Annotated[list[str] | None, Query(max_length=terms.TAGS_MAX, description="has all of these tags")] = None,
    schedule: Annotated[uuid.UUID | None, Query(description="was brought by this schedule")] = None,
    q: Annotated[
        str | None,
        Query(
            max_length=200,
            description="has all of these words, whole and in any case, in its title, tags, kind, or the first "
            f"{terms.INPUT_MAX_CHARS} characters of text in its input (of all these the first {terms.WORDS_MAX} "
            "different words). Only tasks with a title, tags or a schedule are searched.",
        ),
    ] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = 50,
    cursor: Annotated[str | None, Query()] = None,
) -> HttpResponse:
    """List tasks, newest first, with filters. Follow `next` until it is null: a page may be short before that."""
    answers.only(request, "state", "kind", "run", "priority", "tag", "schedule", "q", "limit", "cursor")
    wanted = [terms.of_tag(one) for one in terms.check_tags(tag or (), "tag")]
    wanted += [terms.of_schedule(str(schedule))] if schedule else []
    wanted += terms.of_query(q) if q is not None else []
    caller = caller_of(request)
    serving = service()
    before = queries.LAST_ID if cursor is None else answers.position(cursor)

    def look(connection: Connection) -> HttpResponse:
        with queries.as_tenant(connection, caller.tenant.id):
            look_for = partial(search.tasks_of_terms, terms=wanted) if wanted else queries.tasks
            found, following = look_for(
                connection,
                tenant=caller.tenant.id,
                run=run,
                state=state,
                kind=kind,
                priority=priority,
                before=before,
                most=limit,
            )
            etas = expect.of_tasks(connection, found)
        items = [answers.task_out(task, etas.get(task.id)) for task in found]
        return answers.answer(TaskPage(items=items, next=None if following is None else answers.cursor(following)))

    return await serving.on_thread(lambda: serving.with_connection(look))


@router.get(
    "/{uuid:task_id}", auth=READ, response={200: TaskWhole, (401, 403, 404, 503): Problem}, summary="Read a task"
)
async def read(request: HttpRequest, task_id: uuid.UUID) -> HttpResponse:
    """Read one task with its result or error."""
    caller = caller_of(request)
    serving = service()

    def look(connection: Connection) -> HttpResponse:
        with queries.as_tenant(connection, caller.tenant.id):
            task = queries.the_task(connection, task_id)
            used = costs.of_task(connection, task)
            so_far = steps.so_far(connection, task.id)
            eta = expect.of_tasks(connection, [task]).get(task.id)
            return answers.answer(answers.task_whole(task, used, so_far, eta))

    return await serving.on_thread(lambda: serving.with_connection(look))


@router.get(
    "/{uuid:task_id}/trace",
    auth=READ,
    response={200: Trace, (401, 403, 404, 422, 503): Problem},
    summary="Read a task's trace",
)
async def trace(
    request: HttpRequest,
    task_id: uuid.UUID,
    limit: Annotated[int, Query(ge=1, le=TRACE_PAGE_MAX)] = TRACE_PAGE_MAX,
    cursor: Annotated[str | None, Query()] = None,
) -> HttpResponse:
    """Read what happened to a task, in order."""
    answers.only(request, "limit", "cursor")
    caller = caller_of(request)
    serving = service()
    after = 0 if cursor is None else min(answers.position(cursor), 2**31 - 1)

    def look(connection: Connection) -> HttpResponse:
        with queries.as_tenant(connection, caller.tenant.id):
            task = queries.the_task(connection, task_id)
            events = queries.trace(connection, task.id, after=after, most=limit)
        following = answers.cursor(events[-1].seq) if len(events) == limit else None
        return answers.answer(
            Trace(task_id=task_id, events=[answers.event_out(event) for event in events], next=following)
        )

    return await serving.on_thread(lambda: serving.with_connection(look))
