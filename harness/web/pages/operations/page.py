"""The operations page and its stream, for who sees every tenant. Nothing here writes: buttons lead to verbs' pages."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from harness.store import operations
from harness.store.evaluations import Evaluation
from harness.web.pages import live, marks, times, words
from harness.web.pages.access import Viewer
from harness.web.pages.live import Look
from harness.web.pages.operations import banner, changes, charts, rows, seen, signs, verbs
from harness.web.pages.operations.charts import Point
from harness.web.pages.operations.seen import Seen
from harness.web.pages.shell import SAID, Fragment, answer, operators

PATH = "/operations/"
RELOAD_S = 15  # without JavaScript
EVERY_S = 2.0
LETTERS_SHOWN = 5

_FOLDER = "harness/pages/operations"
# What is read out when it changes stands apart from the banner, which changes with every figure in it.
READ_OUT = (
    Fragment(id="ops_said", template=f"{_FOLDER}/said.html", role="status"),
    Fragment(id="ops_alarm", template=f"{_FOLDER}/alarm.html", role="alert"),
)
FRAGMENTS = READ_OUT + tuple(
    Fragment(id=f"ops_{name}", template=f"{_FOLDER}/{name}.html")
    for name in ("level", "signals", "driver", "pools", "resources", "tenants", "changed", "letters", "engine")
)


@operators
async def show(request: HttpRequest, viewer: Viewer) -> HttpResponseBase:
    """Answer with the page. `?resource=`: whose chart stands first; `?day`: over a day instead of an hour."""
    resource, by_day = request.GET.get("resource", ""), "day" in request.GET
    return answer(
        f"{_FOLDER}/page.html",
        await _facts(viewer, resource, by_day=by_day),
        viewer,
        title=title(await seen.look()),
        fragments=FRAGMENTS,
        live=f"{PATH}live?{request.GET.urlencode()}" if request.GET else f"{PATH}live",
        reload_s=RELOAD_S,
        said=request.GET.get(SAID, ""),
    )


@operators
async def stream(request: HttpRequest, viewer: Viewer) -> HttpResponseBase:
    """Keep the page up to date."""
    resource, by_day = request.GET.get("resource", ""), "day" in request.GET

    async def look() -> Look:
        return Look(facts=await _facts(viewer, resource, by_day=by_day), title=f"{title(await seen.look())} · Harness")

    return live.stream(request, look, FRAGMENTS, every_s=EVERY_S)


def title(found: Seen) -> str:
    """Return what the window is called."""
    return f"{found.level.level.word.capitalize()} · Operations" if found.level else "Operations"


async def _facts(viewer: Viewer, resource: str, *, by_day: bool) -> dict[str, object]:
    found = await seen.look()
    course = await seen.day() if by_day else found.hour
    return facts(found, course, resource=resource, by_day=by_day) | {"may": verbs.may(viewer)}


def facts(found: Seen, course: Sequence[Evaluation], *, resource: str = "", by_day: bool = False) -> dict[str, object]:
    """Return what the templates draw, of a look and the evaluations of an hour or a day."""
    topology = settings.HARNESS_TOPOLOGY
    hour_s = found.hour[-1].at_s - seen.HOUR_S if found.hour else found.at_s - seen.HOUR_S
    signed = signs.signs(topology.pressure, found.readings, found.hour, from_s=hour_s, to_s=hour_s + seen.HOUR_S)
    told = banner.banner(found, topology.pressure)
    first = resource if resource in found.live else banner.shown_resource(found)
    tenants, of_all = rows.tenants(found)
    pools = rows.pools(found, list(topology.pools))
    return {
        "banner": told,
        "gauge": marks.gauge(told.level or "normal"),
        "signs": signed,
        "hot": sum(one.hot for one in signed),
        "rest": _rest(signed),
        "driver": _driver(found, first, course, by_day=by_day),
        "pools": pools,
        "workers": words.counted(len(found.now.sessions), "worker"),
        "at_least": "" if found.counted_all else f"counted as far as {operations.TASKS_MOST:,} tasks",
        "resources": rows.others(found, but=first),
        "tenants": tenants,
        "tenants_of_all": of_all,
        "fairness": _fairness(found),
        "changed": [_line(one, found.at_s) for one in changes.lines(found)],
        "letters": _letters(found),
        "letters_told": _letters_told(found),
        "engine": _engine(found),
    }


def _rest(signed: Sequence[signs.Sign]) -> str:
    """Return the signals that are in range, in one sentence, for narrow windows."""
    calm = [f"{signs.lower(one.label)} {one.value}" for one in signed if not one.hot]
    return f"Normal: {', '.join(calm)}." if calm else ""


def _driver(found: Seen, name: str, course: Sequence[Evaluation], *, by_day: bool) -> Mapping[str, object] | None:
    if name not in found.live:
        return None
    one, now = found.live[name], found.kept.get(name)
    points = [
        Point(
            at_s=each.at_s,
            limit=stood.limit,
            in_use=stood.in_use,
            hit=stood.refused / stood.tried if stood.tried else 0.0,
        )
        for each in course
        if (stood := each.resources.get(name)) is not None
    ]
    span_s = seen.DAY_S if by_day else seen.HOUR_S
    to_s = points[-1].at_s if points else found.at_s
    in_use = now.in_flight if now is not None and one.resource.held == "call" else points[-1].in_use if points else 0
    told = f"limit {one.limit:,} of {one.resource.capacity:,}, {in_use:,} in use"
    breaker = now.breaker.replace("_", " ") if now is not None and now.breaker else ""
    return {
        "name": name,
        "told": told + (f", breaker {breaker}" if breaker else ""),
        "notes": rows.notes(one, found),
        "chart": charts.limit_over_time(
            points, name=name, quota=one.resource.capacity, from_s=to_s - span_s, to_s=to_s, by_day=by_day
        ),
        "by_day": by_day,
    }


def _fairness(found: Seen) -> str:
    one = found.readings.get("tenant_fairness")
    return "" if one is None or one.missing else f"fairness {1.0 - one.value:.2f}"


def _line(one: changes.Line, now_s: float) -> Mapping[str, object]:
    at, now = datetime.fromtimestamp(one.at_s, UTC), datetime.fromtimestamp(now_s, UTC)
    return {"at": times.stamp(at, now), "what": one.what, "detail": one.detail, "level": one.level}


def _letters(found: Seen) -> list[Mapping[str, object]]:
    return [
        {
            "what": words.failure(one.reason.error_class).happened,
            "detail": f"{one.reason.kind}, {words.counted(one.tenants, 'tenant')}",
            "n": one.count,
            "key": one.reason.key,
        }
        for one in found.letters.items[:LETTERS_SHOWN]
    ]


def _letters_told(found: Seen) -> str:
    if not found.letters.looked:
        return "none"
    return f"of the newest {found.letters.looked:,}" if found.letters.more else f"{found.letters.looked:,} in all"


def _engine(found: Seen) -> list[tuple[str, str]]:
    now = found.now
    draining = sum(one.draining for one in now.sessions)
    zombies = sum(now.zombies.values())
    workers = f"{len(now.sessions):,} live" + (f", {draining:,} finishing" if draining else "")
    if zombies:
        workers += f", {words.counted(zombies, 'slot')} lost to work that doesn’t end"
    wanted = [
        f"{pool} {one.advice.desired - one.advice.workers:+d}"
        for pool, one in found.advice.items()
        if not one.stale and one.advice.desired != one.advice.workers
    ]
    retries = f"{now.retries:,} to come"
    if now.retries and now.retry_in_s is not None:
        retries += f", the first in {times.lasted(now.retry_in_s)}" if now.retry_in_s > 0 else ", the first is due"
    oldest = max(found.waiting, key=lambda one: one.age_s, default=None)
    return [
        ("Dispatcher", f"{now.leader} leads" if now.leader and now.leads else "nobody leads: nothing starts"),
        ("Workers", workers),
        ("Wanted", ", ".join(wanted) or "as many as there are"),
        ("Retries", retries if now.retries else "none to come"),
        ("Oldest task", f"{times.lasted(oldest.age_s)}, {oldest.pool} P{oldest.priority}" if oldest else "none waits"),
        ("Forecasts", _forecasts(found.forecasts)),
        ("Audit", f"{words.counted(found.findings, 'finding')} open" if found.findings else "no findings open"),
    ]


def _forecasts(published: Mapping[str, object]) -> str:
    covers = published.get("p90_covers")
    if not isinstance(covers, float):
        return "too few borne out to say"
    return f"nine in ten held {100 * covers:.0f} of 100"
