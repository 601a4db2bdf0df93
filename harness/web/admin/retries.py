"""The table of retries in the admin: what follows from each class of error, and what kinds make of it. To read only."""

from collections.abc import Callable
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path

from harness.kinds import registry
from harness.policy import retry
from harness.policy.errors import ErrorClass
from harness.policy.lifecycle import TABLE, Event
from harness.policy.retry import Rule
from harness.web.admin.letters import LOOKS

WORDS = {
    "retry": "tries again, an attempt spent",
    "postpone": "back in line, no attempt spent",
    "repair": "once to the kind's repair function, else fails",
    "fail": "fails at once",
}


def urls(
    guard: Callable[[Callable[[HttpRequest], HttpResponse]], Any], context: Callable[[HttpRequest], dict[str, Any]]
) -> list[URLPattern]:
    """Return the page. `guard` lets in who may log in; `context`: what every page of the admin has."""

    def shown(request: HttpRequest) -> HttpResponse:
        if not may_see(request):
            raise PermissionDenied
        facts = {
            "title": "Retries",
            "rules": _rules(),
            "refined": _refined(),
            "approval": TABLE[Event.APPROVAL_TIMEOUT].note,
        }
        return TemplateResponse(request, "harness/admin/retries.html", {**context(request), **facts})

    return [path("retries/", guard(shown), name="retries")]


def may_see(request: HttpRequest) -> bool:
    """Whether a person may look: the table has nothing of a tenant's, so whoever may look at tasks."""
    return request.user.has_perm(LOOKS)


def _rules() -> list[dict[str, Any]]:
    return [_row(str(name), rule) for name, rule in retry.VERDICTS.items()]


def _refined() -> list[dict[str, Any]]:
    """What kinds have changed in it, and which of them repair."""
    found: list[dict[str, Any]] = []
    for kind in registry.all_kinds():
        found += [
            _row(str(name), rule) | {"kind": kind.name}
            for name, rule in kind.rules.items()
            if rule != retry.VERDICTS[name]
        ]
        if kind.repair is not None:
            found.append(_row("validation", retry.VERDICTS[ErrorClass.VALIDATION]) | {"kind": kind.name})
    return found


def _row(name: str, rule: Rule) -> dict[str, Any]:
    waits = rule.verdict in ("retry", "postpone")
    return {
        "name": name,
        "verdict": WORDS[rule.verdict],
        "most": rule.most_attempts,
        "backoff": f"{rule.base_s:g} s, doubled, to {rule.cap_s:g} s" if waits else "",
        "why": rule.why,
    }
