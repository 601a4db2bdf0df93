"""`GET /metrics`: what a process manager scales by, as Prometheus reads it. For operators, not for tenants.

It has a door of its own: the bearer token of HARNESS_METRICS_TOKEN. Not set: there is nothing here.
"""

import hmac
from http import HTTPStatus

from django.conf import settings
from django.http import HttpRequest, HttpResponse

from harness.policy.errors import Unavailable
from harness.store import autoscale
from harness.store.autoscale import Standing
from harness.store.database import Connection
from harness.telemetry import metrics
from harness.telemetry.metrics import Sample
from harness.web import problems
from harness.web.service import LOOK_S, service


async def read(request: HttpRequest) -> HttpResponse:
    """Answer with all metrics."""
    token: str = settings.HARNESS_METRICS_TOKEN
    if not token:
        return problems.problem("not_found", "there are no metrics here: HARNESS_METRICS_TOKEN is not set")
    scheme, _, shown = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not hmac.compare_digest(shown.strip().encode(), token.encode()):
        return problems.problem(
            "unauthenticated", "send the token of HARNESS_METRICS_TOKEN: `Authorization: Bearer ..`"
        )
    if request.method not in ("GET", "HEAD"):
        answer = problems.problem("method_not_allowed", f"{request.method} is not understood here; GET is")
        answer["Allow"] = "GET"
        return answer
    serving = service()
    try:
        said = await serving.on_thread(lambda: serving.with_connection(_look), within_s=LOOK_S)
    except Unavailable as error:
        return problems.from_error(error)
    return HttpResponse(said, status=HTTPStatus.OK, content_type=metrics.CONTENT_TYPE)


def _look(connection: Connection) -> str:
    return metrics.text(_samples(autoscale.counted(connection)))


def _samples(found: dict[str, Standing]) -> dict[str, list[Sample]]:
    if not found:
        return {}
    pools = list(found.items())
    return {
        "harness_pool_workers": [((name,), float(one.advice.workers)) for name, one in pools],
        "harness_pool_workers_desired": [((name,), float(one.advice.desired)) for name, one in pools],
        "harness_pool_workers_held": [((name,), float(one.advice.holds)) for name, one in pools],
        "harness_autoscale_age_seconds": [((), round(max(one.now_s - one.seen_s for _, one in pools), 3))],
    }
