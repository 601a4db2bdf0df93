"""What stands at `/`, and at paths where nothing does: the ways in, for people as a page, for programs as JSON.

A program is whoever doesn't ask for HTML by name: curl's and httpx's `Accept: */*` is not a person's.
"""

from http import HTTPStatus

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.loader import render_to_string

from harness.web import problems

WAYS = {
    "documentation": "/api/docs",
    "openapi": "/api/openapi.json",
    "work": "/work/",
    "operations": "/operations/",
    "admin": "/admin/",
    "live": "/health/live",
    "ready": "/health/ready",
}


async def front(request: HttpRequest) -> HttpResponse:
    """The ways in."""
    if request.method not in {"GET", "HEAD"}:
        answer = problems.problem("method_not_allowed", f"{request.method} is not understood here; GET, HEAD is")
        answer["Allow"] = "GET, HEAD"
        return answer
    return _page({}) if _by_a_person(request) else JsonResponse({"name": "Harness", "links": WAYS})


def missing(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """Nothing is at this path: a page with the ways in, or a problem document."""
    if _by_a_person(request):
        return _page({"missing": request.path}, HTTPStatus.NOT_FOUND)
    return problems.problem("not_found", f"there is nothing at {request.path}; GET / lists the ways in")


def _page(facts: dict[str, object], status: HTTPStatus = HTTPStatus.OK) -> HttpResponse:
    return HttpResponse(render_to_string("harness/front.html", {"ways": WAYS, **facts}), status=status)


def _by_a_person(request: HttpRequest) -> bool:
    return "text/html" in request.headers.get("Accept", "")
