"""Probes: is this process alive, and can work go on? Without a key, and without names of machines in the answer."""

import functools
from http import HTTPStatus
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse

from harness.policy.errors import Unavailable
from harness.store import queries
from harness.web import problems
from harness.web.service import LOOK_S, service


async def live(request: HttpRequest) -> HttpResponse:
    """The process answers."""
    return JsonResponse({"status": "ok"})


async def ready(request: HttpRequest) -> HttpResponse:
    """The database answers, a dispatcher leads, and a worker takes work; otherwise 503 with the reasons."""
    serving = service()
    try:
        look = functools.partial(serving.with_connection, queries.readiness)
        found = await serving.on_thread(look, within_s=LOOK_S)
    except Unavailable as error:
        checks = _checks(database=error.message, dispatcher="unknown", worker="unknown")
    else:
        checks = _checks(
            dispatcher=None if found.leading else "no dispatcher leads: start `manage.py dispatcher`",
            worker=None
            if found.open_sessions
            else "all workers drain"
            if found.live_sessions
            else "no worker lives: start `celery -A config worker --resource-pool ..`",
        )
    wrong = [f"{name}: {check['reason']}" for name, check in checks.items() if not check["ok"]]
    if wrong:
        return problems.problem(
            "unavailable", "; ".join(wrong), checks=checks, retry_after_s=problems.UNAVAILABLE_RETRY_S
        )
    return JsonResponse({"status": "ok", "checks": checks}, status=HTTPStatus.OK)


def _checks(**reasons: str | None) -> dict[str, dict[str, Any]]:
    names = ("database", "dispatcher", "worker")
    return {name: {"ok": reasons.get(name) is None, "reason": reasons.get(name)} for name in names}
