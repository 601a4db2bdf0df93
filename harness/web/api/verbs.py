"""People's verbs on a task over HTTP: cancel, pause, resume, requeue, priority. Each is idempotent by itself."""

import uuid
from collections.abc import Callable, Mapping

from django.http import HttpRequest, HttpResponse
from ninja import Router

from harness.engine import expect, operate
from harness.store import queries
from harness.store.database import Connection
from harness.web.api import answers, documents, reading
from harness.web.api.auth import WRITE, caller_of
from harness.web.api.schemas import Acted, PriorityIn, Problem, ReasonIn
from harness.web.service import service

router = Router(tags=["tasks"])

_SAID: Mapping[str, tuple[str, str]] = {
    "cancel": (
        "Cancel a task",
        "End a task: at once (200), or at the next checkpoint of a running one (202). One that has ended: 409.",
    ),
    "pause": (
        "Pause a task",
        (
            "Hold a task until you resume it: at once (200), or at the next checkpoint of a running one (202). Its "
            "times don't wait. One that waits for an approval, is being cancelled or has ended: 409."
        ),
    ),
    "resume": (
        "Resume a task",
        "Lift the tenant's own hold. `held`: an operator's, or the system's, remains. A task that you don't hold: 409.",
    ),
    "requeue": (
        "Try a failed task again now",
        "Try again now instead of when the back-off is over. Only a task in failed_retryable; another: 409.",
    ),
    "priority": (
        "Change a task's priority",
        "Give a waiting task another priority. One that is released, runs or has ended: 409. Its start_by stays.",
    ),
}


def _route(name: str, model: type[ReasonIn] | type[PriorityIn]) -> None:
    summary, description = _SAID[name]

    async def act(request: HttpRequest, task_id: uuid.UUID) -> HttpResponse:
        caller = caller_of(request)
        serving = service()

        def work() -> HttpResponse:
            asked = reading.read(reading.body_of(request), model, empty=model is ReasonIn)

            def do(connection: Connection) -> HttpResponse:
                done = operate.VERBS[name].run(
                    connection, task_id, tenant=caller.tenant.id, actor=caller.actor, **asked.model_dump()
                )
                with queries.as_tenant(connection, caller.tenant.id):
                    task = queries.the_task(connection, task_id)
                    eta = expect.of_tasks(connection, [task]).get(task.id)
                acted = Acted(outcome=done.outcome, task=answers.task_out(task, eta))
                return answers.answer(acted, 202 if done.outcome == "wished" else 200)

            return serving.with_connection(do)

        return await serving.on_thread(work)

    register: Callable[..., object] = router.post(
        f"/{{uuid:task_id}}/{name}",
        auth=WRITE,
        response={(200, 202): Acted, (400, 401, 403, 404, 409, 413, 422, 503): Problem},
        openapi_extra=documents.body(model, required=model is not ReasonIn),
        operation_id=f"{name}_task",
        summary=summary,
        description=description,
    )
    register(act)


for _name in _SAID:
    _route(_name, PriorityIn if _name == "priority" else ReasonIn)
