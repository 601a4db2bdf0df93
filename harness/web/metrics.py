"""`GET /metrics`: all metrics, as Prometheus reads them. For operators, not for tenants.

It has a door of its own: the bearer token of HARNESS_METRICS_TOKEN. Not set: there is nothing here. What is told was
counted by the leading dispatcher (engine.tally), so every web process gives the same answer, from one row.
"""

import hmac
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse

from harness.policy.errors import Unavailable
from harness.policy.tally import Labels
from harness.store import autoscale, tally
from harness.store.autoscale import Standing
from harness.store.database import Connection
from harness.store.tally import Kept, Scraped
from harness.telemetry import metrics
from harness.telemetry.metrics import Samples
from harness.web import problems
from harness.web.service import LOOK_S, service

BREAKER = ("closed", "half_open", "open")


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
    return metrics.text(samples(tally.scraped(connection), autoscale.counted(connection)))


def samples(scraped: Scraped, advice: Mapping[str, Standing]) -> Samples:
    """Return what a scrape tells, by name. Ages are as of the scrape; the rest is as of the last count."""
    found = _of_advice(advice)
    if scraped.renewed_s is not None:
        _put(found, "harness_dispatcher_lag_seconds", [((), max(0.0, scraped.now_s - scraped.renewed_s))])
    if scraped.kept is not None:
        for name, of_name in scraped.kept.totals.items():
            found[name] = dict(of_name)
        _stands(found, scraped.kept, scraped.now_s)
    return found


Found = dict[str, dict[Labels, list[float]]]


def _put(found: Found, name: str, values: Iterable[tuple[Labels, float]]) -> None:
    found[name] = {labels: [float(value)] for labels, value in values}


def _of_advice(advice: Mapping[str, Standing]) -> Found:
    found: Found = {}
    if advice:
        _put(found, "harness_pool_workers", [((pool,), one.advice.workers) for pool, one in advice.items()])
        _put(found, "harness_desired_workers", [((pool,), one.advice.desired) for pool, one in advice.items()])
        _put(found, "harness_pool_workers_held", [((pool,), one.advice.holds) for pool, one in advice.items()])
        age_s = max(one.now_s - one.seen_s for one in advice.values())
        _put(found, "harness_autoscale_age_seconds", [((), round(age_s, 3))])
    return found


def _stands(found: Found, kept: Kept, now_s: float) -> None:
    stands: Mapping[str, Any] = kept.stands
    depth = stands["depth"]
    waiting: dict[Labels, float] = {}
    for pool, priority, _, n in depth["ready"]:
        waiting[pool, str(priority)] = waiting.get((pool, str(priority)), 0) + n
    oldest: dict[Labels, float] = {
        (pool, str(priority)): max(0.0, now_s - since_s) for pool, priority, since_s in stands["oldest"]
    }
    pools = [name for name in settings.HARNESS_TOPOLOGY.pools if name != "system"]
    # A class with nothing in line is 0, not missing: an alarm over it ends when the line does.
    classes: list[Labels] = [(pool, str(priority)) for pool in pools if pool != "quarantine" for priority in range(4)]
    _put(found, "harness_queue_depth_by_priority", {**dict.fromkeys(classes, 0.0), **waiting}.items())
    _put(found, "harness_oldest_job_age_seconds", {**dict.fromkeys(classes, 0.0), **oldest}.items())
    _put(found, "harness_queue_depth_age_seconds", [((), max(0.0, now_s - depth["at_s"]))])
    _put(found, "harness_tasks_later", [((), depth["later"])])
    _put(found, "harness_tasks_held", [((), depth["held"])])
    _put(found, "harness_dead_letters", [((), depth["dead"])])
    _put(found, "harness_approvals_open", [((), stands["asked"])])
    _put(found, "harness_cancellation_rate", [((), stands["cancellation_rate"])])
    _slots(found, stands, pools)
    _resources(found, stands, now_s)
    _pressure(found, stands, now_s)
    _put(found, "harness_tenant_in_flight", [((name,), n) for name, n in stands["tenants_in_flight"].items()])
    _put(found, "harness_tenant_waiting", [((name,), n) for name, n in stands["tenants_waiting"].items()])
    of_rules = [((rule, level), n) for rule, level, n in stands["findings"]]
    _put(found, "harness_audit_findings", of_rules or [(("none", "fault"), 0)])
    if stands["forecasts"] is not None:
        at_s, _, calibration = stands["forecasts"]
        _put(found, "harness_eta_age_seconds", [((), max(0.0, now_s - at_s))])
        covers = {"0.5": calibration.get("p50_covers"), "0.9": calibration.get("p90_covers")}
        _put(found, "harness_eta_coverage", [((q,), value) for q, value in covers.items() if value is not None])
        if (ratio := calibration.get("pinball_ratio")) is not None:
            _put(found, "harness_eta_error_ratio", [((), ratio)])
    _put(found, "harness_tally_age_seconds", [((), max(0.0, now_s - kept.seen_s))])
    _put(found, "harness_tally_took_seconds", [((), kept.took_s)])


def _slots(found: Found, stands: Mapping[str, Any], pools: list[str]) -> None:
    slots = dict(stands["slots"])
    held = {pool: rest for pool, *rest in stands["held"]}
    none = [0, 0, 0, 0]
    _put(found, "harness_slots", [((pool,), slots.get(pool, 0)) for pool in pools])
    for name, at in (("harness_in_flight", 0), ("harness_tasks_in_flight", 2), ("harness_zombies", 3)):
        _put(found, name, [((pool,), held.get(pool, none)[at]) for pool in pools])
    _put(
        found,
        "harness_worker_utilization",
        [((pool,), held.get(pool, none)[1] / slots[pool]) for pool in pools if slots.get(pool)],
    )


def _resources(found: Found, stands: Mapping[str, Any], now_s: float) -> None:
    rows = stands["resources"]
    _put(found, "harness_resource_limit", [((name,), limit) for name, limit, *_ in rows])
    _put(found, "harness_resource_in_flight", [((name,), n) for name, _, n, *_ in rows])
    _put(found, "harness_resource_waiting", [((name,), n) for name, _, _, n, *_ in rows])
    _put(found, "harness_resource_age_seconds", [((row[0],), max(0.0, now_s - row[5])) for row in rows])
    _put(
        found,
        "harness_breaker",
        [((row[0], state), float(row[4] == state)) for row in rows if row[4] for state in BREAKER],
    )


def _pressure(found: Found, stands: Mapping[str, Any], now_s: float) -> None:
    if stands["level"] is None:
        return
    level, seen_s, readings = stands["level"]
    _put(found, "harness_backpressure_level", [((), level)])
    _put(found, "harness_backpressure_age_seconds", [((), max(0.0, now_s - seen_s))])
    known = {name: one for name, one in readings.items() if not one["missing"]}
    _put(found, "harness_backpressure_signal", [((name,), one["value"]) for name, one in known.items()])
    _put(found, "harness_backpressure_signal_level", [((name,), one["score"]) for name, one in known.items()])
    if "tenant_fairness" in known:
        _put(found, "harness_tenant_fairness", [((), known["tenant_fairness"]["value"])])
