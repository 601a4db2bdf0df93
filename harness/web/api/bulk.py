"""Verbs over many tasks over HTTP: by a filter, and for all tasks of a run. Bounded in time; `next` goes on."""

import uuid
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from ninja import Router

from harness.engine import operate
from harness.store.database import Connection
from harness.web.api import answers, documents, reading
from harness.web.api.auth import WRITE, caller_of
from harness.web.api.schemas import (
    BulkIn,
    BulkOut,
    PauseScopeIn,
    Previewed,
    PriorityIn,
    Problem,
    ReasonIn,
    ScopeActed,
)
from harness.web.service import service

router = Router(tags=["tasks"])
of_runs = Router(tags=["runs"])

WITHIN_S = 10.0  # a third of what an answer may take (web.service): what is left is done by the next request


@router.post(
    "/bulk",
    auth=WRITE,
    response={200: BulkOut | Previewed, (400, 401, 403, 404, 413, 422, 503): Problem},
    openapi_extra=documents.body(BulkIn),
    summary="Do a verb to many tasks",
)
async def bulk(request: HttpRequest) -> HttpResponse:
    """Cancel, pause, resume, requeue or reprioritise all of the tenant's unfinished tasks that match; or only count.

    Idempotent: what is done already is counted so. After some 10 s it answers with `next`: send it again as `cursor`.
    """
    caller = caller_of(request)
    serving = service()

    def work() -> HttpResponse:
        asked = reading.read(reading.body_of(request), BulkIn)
        where = operate.Filter(**asked.filter.model_dump())

        def act(connection: Connection) -> HttpResponse:
            if asked.preview:
                seen = operate.preview(connection, asked.verb, where, tenant=caller.tenant.id)
                return answers.answer(
                    Previewed(verb=asked.verb, matching=seen.matching, more=seen.more, by_state=seen.by_state)
                )
            done = operate.bulk(
                connection,
                asked.verb,
                where,
                tenant=caller.tenant.id,
                actor=caller.actor,
                reason=asked.reason,
                priority=asked.priority,
                after=0 if asked.cursor is None else answers.position(asked.cursor),
                within_s=WITHIN_S,
            )
            return answers.answer(answers.bulk_out(done))

        return serving.with_connection(act)

    return await serving.on_thread(work)


_SAID = {
    "cancel": ("Cancel a run", "End all unfinished tasks of a run; running ones stop at their next checkpoint."),
    "requeue": ("Try a run's failed tasks again now", "Try all tasks of a run in failed_retryable again now."),
    "priority": (
        "Change the priority of a run's waiting tasks",
        "Give the waiting tasks of a run another priority; what is released, runs, or waits for something else stays.",
    ),
}


def _route(name: str, model: type[ReasonIn] | type[PriorityIn]) -> None:
    summary, description = _SAID[name]

    async def act(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
        caller = caller_of(request)
        serving = service()

        def work() -> HttpResponse:
            asked = reading.read(reading.body_of(request), model, empty=model is ReasonIn)

            def do(connection: Connection) -> HttpResponse:
                done = operate.bulk(
                    connection,
                    name,
                    operate.Filter(run=run_id),
                    tenant=caller.tenant.id,
                    actor=caller.actor,
                    within_s=WITHIN_S,
                    **asked.model_dump(),
                )
                return answers.answer(answers.bulk_out(done))

            return serving.with_connection(do)

        return await serving.on_thread(work)

    register: Callable[..., object] = of_runs.post(
        f"/{{uuid:run_id}}/{name}",
        auth=WRITE,
        response={200: BulkOut, (400, 401, 403, 404, 413, 422, 503): Problem},
        openapi_extra=documents.body(model, required=model is not ReasonIn),
        operation_id=f"{name}_run",
        summary=summary,
        description=description,
    )
    register(act)


_SCOPE_SAID = {
    "pause": (
        "Pause a run",
        "Start no more tasks of a run until you resume it, or until a moment. What runs goes on. Within a second.",
        operate.pause_scope,
    ),
    "resume": (
        "Resume a run",
        "Lift your own pause of a run; its slots come back within 20 s, 10 % of them at once. Not paused by you: 409.",
        operate.resume_scope,
    ),
}


def _scope_route(name: str, model: type[ReasonIn] | type[PauseScopeIn]) -> None:
    summary, description, verb = _SCOPE_SAID[name]
    function: Callable[..., operate.Done] = verb

    async def act(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
        caller = caller_of(request)
        serving = service()

        def work() -> HttpResponse:
            asked = reading.read(reading.body_of(request), model, empty=True)

            def do(connection: Connection) -> HttpResponse:
                done = function(
                    connection,
                    "run",
                    str(run_id),
                    tenant=caller.tenant.id,
                    actor=caller.actor,
                    **asked.model_dump(exclude_unset=True),
                )
                return answers.answer(ScopeActed(outcome=done.outcome))

            return serving.with_connection(do)

        return await serving.on_thread(work)

    register: Callable[..., object] = of_runs.post(
        f"/{{uuid:run_id}}/{name}",
        auth=WRITE,
        response={200: ScopeActed, (400, 401, 403, 404, 409, 413, 422, 503): Problem},
        openapi_extra=documents.body(model, required=False),
        operation_id=f"{name}_run",
        summary=summary,
        description=description,
    )
    register(act)


for _name in _SCOPE_SAID:
    _scope_route(_name, PauseScopeIn if _name == "pause" else ReasonIn)

for _name in _SAID:
    _route(_name, PriorityIn if _name == "priority" else ReasonIn)
