"""The API as a whole: its routers, its documentation at /api/docs, and what becomes of errors."""

from django.http import HttpRequest, HttpResponse
from ninja import NinjaAPI
from ninja.errors import HttpError, ValidationError

from harness.engine import payload
from harness.policy.errors import HarnessError
from harness.web import problems
from harness.web.api import (
    approvals,
    artifacts,
    bulk,
    forecasts,
    ingestions,
    kinds,
    letters,
    page_links,
    pressure,
    reading,
    runs,
    schedules,
    steps,
    stream,
    tasks,
    usage,
    verbs,
    why,
)

api = NinjaAPI(
    title="Harness",
    version="1",
    description="Long agent tasks for many tenants. Errors are RFC 9457 problem documents that name the field to mend.",
    docs_url="/docs",
    openapi_url="/openapi.json",
)
api.add_router("/v1/tasks", tasks.router)
api.add_router("/v1/tasks", verbs.router)
api.add_router("/v1/tasks", bulk.router)
api.add_router("/v1/tasks", stream.router)
api.add_router("/v1/tasks", steps.router)
api.add_router("/v1/tasks", why.router)
api.add_router("/v1/tasks", letters.verb)
api.add_router("/v1/tasks", approvals.of_tasks)
api.add_router("/v1/tasks", page_links.of_tasks)
api.add_router("/v1/approvals", approvals.router)
api.add_router("/v1/dead-letters", letters.router)
api.add_router("/v1/usage", usage.router)
api.add_router("/v1/pressure", pressure.router)
api.add_router("/v1/forecasts", forecasts.router)
api.add_router("/v1/runs", runs.router)
api.add_router("/v1/runs", bulk.of_runs)
api.add_router("/v1/runs", page_links.of_runs)
api.add_router("/v1/kinds", kinds.router)
api.add_router("/v1/schedules", schedules.router)
api.add_router("/v1/artifacts", artifacts.router)
api.add_router("/v1/ingestions", ingestions.router)


@api.exception_handler(HarnessError)
def _known(request: HttpRequest, error: HarnessError) -> HttpResponse:
    return problems.from_error(error)


@api.exception_handler(ValidationError)
def _wrong_query(request: HttpRequest, error: ValidationError) -> HttpResponse:
    # ninja's paths begin with where the value stood ("query"), which says nothing to the caller.
    errors = [payload.told(payload.path_of(one["loc"][1:]) or "query", one["msg"]) for one in error.errors]
    return problems.from_error(reading.wrong(errors))


@api.exception_handler(HttpError)
def _http_error(request: HttpRequest, error: HttpError) -> HttpResponse:
    return problems.plain(HttpResponse(status=error.status_code), request)


@api.exception_handler(Exception)
def _unforeseen(request: HttpRequest, error: Exception) -> HttpResponse:
    return problems.internal(request, error)
