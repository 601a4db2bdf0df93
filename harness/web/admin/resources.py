"""Resources in the admin: how each stands now, what of it is overridden, and the newest changes of limits.

For who sees every tenant: a resource is everyone's.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse

from harness.engine import operate
from harness.policy.errors import HarnessError
from harness.policy.resources import Live
from harness.store import overrides, resources, staff
from harness.store.resources import Change, ResourceNow
from harness.web.admin.scope import scope_of

LOOKS = "store.view_resourcestate"
SETS = "store.add_override"
CLEARS = "store.delete_override"
CHANGES = 12
STALE_S = 30.0  # what was seen longer ago is told as such


@dataclass(frozen=True, kw_only=True, slots=True)
class _Row:
    """A resource as the page shows it."""

    name: str
    held: str
    limiter: str
    limit: int
    of: int | None
    rates: str
    in_flight: int | None
    waiting: int | None
    share: int
    notes: tuple[str, ...]
    last: Change | None
    last_at: datetime | None
    overrides: tuple[tuple[str, str], ...]


def urls(
    guard: Callable[[Callable[[HttpRequest], HttpResponse]], Any], context: Callable[[HttpRequest], dict[str, Any]]
) -> list[URLPattern]:
    """Return the page. `guard` lets in who may log in; `context`: what every page of the admin has."""

    def page(request: HttpRequest) -> HttpResponse:
        if not may_see(request):
            raise PermissionDenied
        try:
            return TemplateResponse(request, "harness/admin/resources.html", context(request) | _shown(request))
        except HarnessError as error:
            messages.error(request, error.message)
            return HttpResponseRedirect(reverse("admin:index"))

    return [path("resources/", guard(page), name="resources")]


def may_see(request: HttpRequest) -> bool:
    """Whether a person may look at resources: who may look at their states, of every tenant."""
    return scope_of(request).everything and request.user.has_perm(LOOKS)


def _shown(request: HttpRequest) -> dict[str, Any]:
    configured = settings.HARNESS_TOPOLOGY.resources
    with staff.own_connection(None) as connection:
        live = resources.effective(connection, configured)
        kept = resources.kept(connection)
        last = resources.last_changes(connection, configured)
        changes = resources.changes(connection, most=CHANGES)
        stray = [row for row in overrides.standing(connection) if row.resource not in configured and not row.over]
    now_s = datetime.now(UTC).timestamp()
    return {
        "title": "Resources",
        "rows": [_row(one, kept.get(name), last.get(name), now_s) for name, one in live.items()],
        "changes": [(_utc(one.at_s), one) for one in changes],
        "stray": [(row, operate.value_shown(row.value, row.field)) for row in stray],
        "may_set": request.user.has_perm(SETS),
        "may_clear": request.user.has_perm(CLEARS),
    }


def _row(live: Live, seen: ResourceNow | None, last: Change | None, now_s: float) -> _Row:
    resource = live.resource
    in_flight = None if seen is None else seen.in_flight
    return _Row(
        name=resource.name,
        held=resource.held,
        limiter=resource.limiter if resource.held == "call" else "",
        limit=live.limit,
        of=resource.capacity if live.limit != resource.capacity or resource.adaptive else None,
        rates=", ".join(
            f"{rate:,.10g} {unit}" for rate, unit in ((resource.rpm, "rpm"), (resource.tpm, "tpm")) if rate
        ),
        in_flight=in_flight,
        waiting=None if seen is None else seen.waiting,
        share=min(100, round(100 * (in_flight or 0) / live.limit)) if live.limit else 0,
        notes=tuple(_notes(live, seen, now_s)),
        last=last,
        last_at=None if last is None else _utc(last.at_s),
        overrides=tuple(_together(live)),
    )


def _notes(live: Live, seen: ResourceNow | None, now_s: float) -> list[str]:
    """Return what of a resource is out of the ordinary, in words."""
    found = []
    if live.resource.capacity == 0:
        found.append("closed: nothing uses it")
    if seen is None:
        return found
    if seen.breaker not in ("", "closed"):
        until = f" until {_clock(seen.breaker_until_s)}" if (seen.breaker_until_s or 0.0) > now_s else ""
        found.append(f"breaker {seen.breaker.replace('_', ' ')}{until}")
    if seen.blocked_until_s is not None and seen.blocked_until_s > now_s:
        found.append(f"blocked until {_clock(seen.blocked_until_s)}")
    if seen.seen_s is not None and now_s - seen.seen_s > STALE_S:
        found.append(f"last seen at {_clock(seen.seen_s)}")
    return found


def _together(live: Live) -> Iterator[tuple[str, str]]:
    """Return the fields that were set in one act, with who and why once."""
    acts: dict[tuple[str, str, float | None], list[str]] = {}
    for field, one in sorted(live.overrides.items()):
        said = f"{field} {operate.value_shown(one.value, field)}"
        acts.setdefault((one.author, one.reason, one.until_s), []).append(said)
    for (author, reason, until_s), said_of_it in acts.items():
        until = "" if until_s is None else f" (until {_clock(until_s)})"
        yield ", ".join(said_of_it), f"{author}: {reason}{until}"


def _clock(at_s: float | None) -> str:
    at = _utc(at_s)
    return "" if at is None else f"{at:%Y-%m-%d %H:%M:%S}"


def _utc(at_s: float | None) -> datetime | None:
    return None if at_s is None else datetime.fromtimestamp(at_s, UTC)
