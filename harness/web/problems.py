"""Errors as RFC 9457 problem documents: one table maps an error's code to its status. Never a traceback.

Members beside the standard's: `code`, `field` (the one to mend), `errors` (all that are wrong, at most 20), and the
error's own facts (`task_id`, `retry_after_s` ..).
"""

import json
import math
from http import HTTPStatus

from django.http import HttpRequest, HttpResponse

from harness.policy.errors import HarnessError, Invalid
from harness.telemetry import logs

CONTENT_TYPE = "application/problem+json"
UNAVAILABLE_RETRY_S = 2.0

STATUS = {
    "bad_json": 400,
    "bad_request": 400,
    "unauthenticated": 401,
    "forbidden": 403,
    "refused": 403,
    "not_found": 404,
    "method_not_allowed": 405,
    "conflict": 409,
    "too_large": 413,
    "bad_range": 416,
    "invalid": 422,
    "budget_exceeded": 429,
    "over_quota": 429,
    "internal": 500,
    "overload": 503,
    "unavailable": 503,
}
_CODES = {status: code for code, status in STATUS.items() if code not in {"bad_json", "overload", "refused"}}

log = logs.get(__name__)


class BadJson(Invalid):
    """The body isn't JSON."""

    code = "bad_json"


def problem(code: str, detail: str, *, field: str | None = None, **facts: object) -> HttpResponse:
    """Return an answer that says what is wrong. `retry_after_s` among the facts becomes Retry-After too."""
    status = STATUS.get(code, 500)
    document: dict[str, object] = {
        "type": f"urn:harness:problem:{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "code": code,
    }
    if field is not None:
        document["field"] = field
    document.update((name, value) for name, value in facts.items() if value is not None)
    response = HttpResponse(json.dumps(document, default=str), status=status, content_type=CONTENT_TYPE)
    retry_after_s = facts.get("retry_after_s")
    if isinstance(retry_after_s, int | float):
        response["Retry-After"] = str(max(1, math.ceil(retry_after_s)))
    if status == HTTPStatus.UNAUTHORIZED:
        response["WWW-Authenticate"] = 'Bearer realm="harness"'
    return response


def from_error(error: HarnessError) -> HttpResponse:
    """Return the answer to an error of Harness."""
    facts = dict(error.facts)
    if error.code == "unavailable":
        facts.setdefault("retry_after_s", UNAVAILABLE_RETRY_S)
    return problem(error.code, error.message, field=error.field, **facts)


def internal(request: HttpRequest, error: Exception) -> HttpResponse:
    """Log what nobody foresaw, and return an answer that tells nothing of it."""
    log.error("request_failed", method=request.method, path=request.path, exc_info=error)
    return problem("internal", "something went wrong inside Harness; it has been logged")


def plain(response: HttpResponse, request: HttpRequest) -> HttpResponse:
    """Return an error of Django's (a page, for people) as a problem document."""
    code = _CODES.get(response.status_code)
    if code == "not_found":
        answer = problem(code, f"there is nothing at {request.path}; GET /api/docs shows what there is")
    elif code == "method_not_allowed":
        allowed = response.get("Allow", "")
        answer = problem(code, f"{request.method} is not understood here; {allowed or 'nothing'} is")
        answer["Allow"] = allowed
    elif code is not None:
        answer = problem(code, HTTPStatus(response.status_code).phrase)
    else:
        answer = problem(
            "bad_request" if response.status_code < HTTPStatus.INTERNAL_SERVER_ERROR else "internal",
            response.reason_phrase,
        )
    return answer
