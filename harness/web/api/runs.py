"""Runs over HTTP: submit many tasks that belong together, and see how far they are."""

import uuid

from django.http import HttpRequest, HttpResponse
from ninja import Router

from harness.engine import expect, submit
from harness.policy.errors import NotFound
from harness.store import queries
from harness.store.database import Connection
from harness.telemetry import traces
from harness.web.api import answers, costs, documents, reading
from harness.web.api.auth import READ, WRITE, caller_of
from harness.web.api.schemas import Problem, RunIn, RunMade, RunOut
from harness.web.api.tasks import request_of
from harness.web.service import service

router = Router(tags=["runs"])


@router.post(
    "",
    auth=WRITE,
    response={202: RunMade, 200: RunMade, (400, 401, 403, 409, 413, 422, 429, 503): Problem},
    openapi_extra=documents.body(RunIn, idempotent=True),
    summary="Submit a run",
)
async def create(request: HttpRequest) -> HttpResponse:
    """Take up to 10,000 tasks as a whole, or refuse them as a whole: all of them are rows when 202 is sent."""
    caller = caller_of(request)
    serving = service()
    key = request.headers.get("Idempotency-Key")

    def work() -> HttpResponse:
        asked = reading.read(reading.body_of(request), RunIn, nodes_max=serving.door.run_max_tasks)
        run = submit.RunRequest(
            nodes=[request_of(node) for node in asked.nodes], name=asked.name, fanout_cap=asked.fanout_cap
        )
        checked = submit.check_run(serving.door, caller.tenant, run, idempotency_key=key)

        def take(connection: Connection) -> HttpResponse:
            accepted = submit.commit(serving.door, connection, caller.tenant, checked, actor=caller.actor)
            assert accepted.run_id is not None  # a run was asked for
            task_ids, start_by = list(accepted.task_ids), accepted.start_by
            if accepted.existing:
                with queries.as_tenant(connection, caller.tenant.id):
                    task_ids = queries.tasks_of_run(connection, accepted.run_id)
                    start_by = queries.start_by_of_run(connection, accepted.run_id)
            made = RunMade.model_construct(  # ids need no second look, and there may be 10,000
                run_id=accepted.run_id,
                size=len(task_ids),
                admission="deferred" if accepted.deferred else "accepted",
                deferred=accepted.deferred,
                reason=accepted.reason or None,
                expected_start=answers.utc(accepted.expected_start),
                start_by=answers.utc(start_by),
                existing=accepted.existing,
                budget=costs.budget_out(accepted.standing),
                task_ids=task_ids,
                links=answers.run_links(accepted.run_id),
            )
            return costs.warned(answers.answer(made, 200 if accepted.existing else 202), accepted.standing)

        with traces.request("POST /api/v1/runs", request.headers.get("traceparent")):
            return serving.with_connection(take)

    return await serving.on_thread(work)


@router.get("/{uuid:run_id}", auth=READ, response={200: RunOut, (401, 403, 404, 503): Problem}, summary="Read a run")
async def read(request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
    """Read a run with its tasks counted by state; list them at /api/v1/tasks?run=.."""
    caller = caller_of(request)
    serving = service()

    def look(connection: Connection) -> HttpResponse:
        with queries.as_tenant(connection, caller.tenant.id):
            run = queries.run(connection, run_id)
            eta = None if run is None else expect.of_run(connection, run)
        if run is None:
            raise NotFound(f"there is no run {run_id}")
        return answers.answer(answers.run_out(run, eta))

    return await serving.on_thread(lambda: serving.with_connection(look))
