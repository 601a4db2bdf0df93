"""Dead letters in the admin: by reason, then the letters of one, then the task's page; and sending many again.

Counts are of the newest letters that were looked at, never of the whole table. A person with one tenant sees and sends
that tenant's letters alone: by the engine's functions, and by row-level security below them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.http import urlencode

from harness.engine import letters, operate
from harness.engine.letters import Wanted
from harness.policy.errors import HarnessError
from harness.store import staff
from harness.store.database import Connection
from harness.store.letters import END_OF_TIME, Letter, Place
from harness.store.models import Task, Tenant
from harness.web.admin import line, once
from harness.web.admin.filters import TENANTS_SHOWN
from harness.web.admin.marks import mark
from harness.web.admin.scope import person_of, scope_of
from harness.web.admin.verbs import PERMISSION

LOOKS = "store.view_task"
PAGE = 50
TICKED_MOST = 200
MESSAGE_CHARS = 300

Page = Callable[[HttpRequest], HttpResponse]


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """Which letters a page is about. `tenant` None: every tenant's. `tasks`: those that were ticked."""

    tenant: int | None
    wanted: Wanted
    tasks: tuple[int, ...] = ()

    def query(self, **more: str | int | None) -> str:
        """Return it as a query string."""
        said: dict[str, str | int | None] = {
            "tenant": self.tenant,
            "kind": self.wanted.kind,
            "class": self.wanted.error_class,
            "reason": self.wanted.reason,
            **more,
        }
        return urlencode({name: value for name, value in said.items() if value is not None and value != ""})


def urls(guard: Callable[[Page], Any], context: Callable[[HttpRequest], dict[str, Any]]) -> list[URLPattern]:
    """Return the pages. `guard` lets in who may log in; `context`: what every page of the admin has."""

    def page(view: Callable[[HttpRequest, dict[str, Any]], HttpResponse]) -> Any:
        def shown(request: HttpRequest) -> HttpResponse:
            if not may_see(request):
                raise PermissionDenied
            try:
                return view(request, {**context(request), "dead_letters": True})
            except HarnessError as error:
                messages.error(request, error.message)
                return HttpResponseRedirect(reverse("admin:index"))

        return guard(shown)

    return [
        path("dead-letters/", page(by_reason), name="dead_letters"),
        path("dead-letters/list/", page(one_by_one), name="dead_letters_list"),
        path("dead-letters/redrive/", page(send_again), name="dead_letters_redrive"),
    ]


def may_see(request: HttpRequest) -> bool:
    """Whether a person may look at dead letters: who may look at tasks."""
    scope = scope_of(request)
    return (scope.everything or scope.tenant is not None) and request.user.has_perm(LOOKS)


def by_reason(request: HttpRequest, context: dict[str, Any]) -> HttpResponse:
    """Show the groups."""
    asked = _asked(request)
    found = _with(request, lambda connection: letters.groups(connection, asked.wanted, tenant=asked.tenant))
    most = max((group.count for group in found.items), default=1)
    context |= {
        "title": "Dead letters",
        "mark": mark("failed_terminal"),
        "groups": [
            {
                "group": group,
                "share": round(100 * group.count / most, 1),
                "ago": _ago(group.newest),
                "list_url": _url("dead_letters_list", _of_reason(asked, group.reason.key)),
                "redrive_url": _url("dead_letters_redrive", _of_reason(asked, group.reason.key)),
            }
            for group in found.items
        ],
        "looked": found.looked,
        "more": found.more,
        "may_operate": request.user.has_perm(PERMISSION),
        **_narrowed(request, asked, "dead_letters"),
    }
    return TemplateResponse(request, "harness/admin/letters.html", context)


def one_by_one(request: HttpRequest, context: dict[str, Any]) -> HttpResponse:
    """Show letters, those that died last first."""
    asked = _asked(request)
    before = _place(request.GET.get("before"))

    def look(connection: Connection) -> tuple[list[Letter], Place | None]:
        return letters.page(connection, asked.wanted, tenant=asked.tenant, before=before or END_OF_TIME, most=PAGE)

    found, following = _with(request, look)
    context |= {
        "title": "Dead letters",
        "mark": mark("failed_terminal"),
        "reason": letters.reason_of_letter(found[0]) if asked.wanted.reason and found else None,
        "letters": [_row(letter) for letter in found],
        "newest_url": _url("dead_letters_list", asked) if before else None,
        "older_url": (
            f"{reverse('admin:dead_letters_list')}?{asked.query(before=_text(following))}" if following else None
        ),
        "short": following is not None and len(found) < PAGE,
        "redrive_at": reverse("admin:dead_letters_redrive"),
        "redrive_all_url": None if asked.wanted.everything else _url("dead_letters_redrive", asked),
        "groups_url": reverse("admin:dead_letters"),
        "may_operate": request.user.has_perm(PERMISSION),
        **_narrowed(request, asked, "dead_letters_list"),
    }
    return TemplateResponse(request, "harness/admin/letters_list.html", context)


def send_again(request: HttpRequest, context: dict[str, Any]) -> HttpResponse:
    """Confirm (GET) or send again (POST) what was ticked, or all letters of a kind, class or reason."""
    if not request.user.has_perm(PERMISSION):
        raise PermissionDenied
    asked = _asked(request)
    back = _url("dead_letters_list", asked)
    if asked.wanted.everything and not asked.tasks:
        messages.warning(request, "Tick the letters to send again, or choose a reason.")
        return HttpResponseRedirect(back)
    purpose = f"redrive {asked.query()} {' '.join(map(str, asked.tasks))}"
    reason = request.POST.get("reason", "").strip()
    context |= {"back": back, "mark": mark("failed_terminal"), "reason": reason}
    if request.method == "POST" and reason:
        try:
            if once.take(request, purpose):
                return _sent(request, asked, reason, context)
            messages.info(request, "That form was sent already; it acted once.")
            return HttpResponseRedirect(back)
        except once.Stale:
            context["error"] = "This page was too old. Nothing was done yet; send it again."
        except HarnessError as error:
            context["error"] = error.message
    elif request.method == "POST":
        context["error"] = "Say why: the reason stands in the trace of each task."
    seen: operate.Forecast = _with(
        request, lambda connection: operate.forecast(connection, _these(connection, asked), tenant=asked.tenant)
    )
    context |= {
        "title": f"Send {_tasks(seen.tasks)} again?" if seen.tasks else "There is nothing to send again",
        "seen": seen,
        "refused": _refused(seen.tally),
        "expected": line.duration(seen.expected_slot_s),
        "used": line.duration(seen.slot_s),
        "over": seen.room is not None and seen.room < seen.tasks,
        "once_field": once.FIELD,
        "once": once.token(request, purpose),
    }
    return TemplateResponse(request, "harness/admin/letters_redrive.html", context)


def _sent(request: HttpRequest, asked: Asked, reason: str, context: dict[str, Any]) -> HttpResponse:
    def send(connection: Connection) -> operate.Tally:
        return operate.bulk(
            connection,
            "redrive",
            _these(connection, asked),
            tenant=asked.tenant,
            actor=person_of(request),
            reason=reason,
            most=operate.MANY_MOST,
        )

    tally: operate.Tally = _with(request, send)
    sent = tally.done["redriven"]
    context |= {
        "title": f"{_tasks(sent)} sent again" if sent else "Nothing was sent again",
        "mark": mark("queued" if sent else "failed_terminal"),
        "done": [("Sent again, in line now", sent), ("Were in line already", tally.already)],
        "refused": _refused(tally),
        "more": tally.more,
        "stopped": tally.stopped,
        "again_url": _url("dead_letters_redrive", asked) if tally.more else None,
        "tasks_url": f"{reverse('admin:store_task_changelist')}?state=queued",
    }
    return TemplateResponse(request, "harness/admin/done.html", context)


def _these(connection: Connection, asked: Asked) -> Iterable[Sequence[int]]:
    """The ids that a page is about."""
    return [asked.tasks] if asked.tasks else letters.batches(connection, asked.wanted, tenant=asked.tenant)


def _asked(request: HttpRequest) -> Asked:
    """What the address says; a person with a tenant is held to it, whatever the address says."""
    said: QueryDict = request.GET
    scope = scope_of(request)
    tenant = scope.tenant
    named = said.get("tenant") or ""
    if scope.everything and named.isascii() and named.isdigit():
        tenant = Tenant.objects.filter(id=int(named[:9])).values_list("id", flat=True).first()
    ticked = [int(task) for task in said.getlist("task") if task.isascii() and task.isdigit() and len(task) <= 18]
    return Asked(
        tenant=tenant,
        wanted=Wanted(
            kind=said.get("kind") or None, error_class=said.get("class") or None, reason=said.get("reason") or None
        ),
        tasks=tuple(sorted(set(ticked[:TICKED_MOST]))),
    )


def _with(request: HttpRequest, work: Callable[[Connection], Any]) -> Any:
    with staff.own_connection(scope_of(request).tenant) as connection:
        return work(connection)


def _narrowed(request: HttpRequest, asked: Asked, page: str) -> dict[str, Any]:
    """What narrows a list, each with a link that takes it away; and the tenants to choose from."""
    chips = [
        (name, value, f"{reverse(f'admin:{page}')}?{asked.query(**{name: None})}")
        for name, value in (("kind", asked.wanted.kind), ("class", asked.wanted.error_class))
        if value
    ]
    tenants: Sequence[tuple[int, str]] = ()
    if scope_of(request).everything:
        tenants = list(Tenant.objects.order_by("name").values_list("id", "name")[:TENANTS_SHOWN])
    return {
        "chips": chips,
        "tenants": tenants,
        "tenant": asked.tenant,
        "kept": [
            (name, value)
            for name, value in (
                ("kind", asked.wanted.kind),
                ("class", asked.wanted.error_class),
                ("reason", asked.wanted.reason),
            )
            if value
        ],
    }


def _row(letter: Letter) -> Mapping[str, Any]:
    last = letter.events[0] if letter.events else None
    return {
        "letter": letter,
        "died": letter.dead_at.astimezone(UTC),
        "message": letter.message[:MESSAGE_CHARS] + ("…" if len(letter.message) > MESSAGE_CHARS else ""),
        "url": reverse(f"admin:{Task._meta.app_label}_task_change", args=(letter.id,)),
        "last": f"{last['event']} by {last['actor']}" if last else "",
        "happened": " → ".join(str(event["event"]) for event in reversed(letter.events)),
        "steps": steps_in_words(letter),
    }


def steps_in_words(letter: Letter) -> str:
    """Return the last steps of a letter in a line; '' for a kind without steps."""
    if not letter.steps:
        return ""
    last = " → ".join(
        f"{step['name']}{'' if step['finished_at'] else ' (not finished)'}" for step in letter.steps[::-1]
    )
    before = letter.steps_finished - sum(step["finished_at"] is not None for step in letter.steps)
    return f"steps: {f'{before} before, ' if before else ''}{last}"


def _of_reason(asked: Asked, key: str) -> Asked:
    return Asked(tenant=asked.tenant, wanted=Wanted(reason=key))


def _url(page: str, asked: Asked) -> str:
    query = asked.query()
    return reverse(f"admin:{page}") + (f"?{query}" if query else "")


def _refused(tally: operate.Tally) -> list[tuple[int, str]]:
    return [(count, tally.messages[code]) for code, count in tally.refused.most_common()]


def _tasks(n: int) -> str:
    return "1 task" if n == 1 else f"{n:,} tasks"


def _ago(moment: datetime) -> str:
    seconds = (datetime.now(UTC) - moment).total_seconds()
    return "just now" if seconds < 1 else f"{line.duration(seconds)} ago"


def _text(place: Place) -> str:
    return f"{place[0].astimezone(UTC).isoformat()}_{place[1]}"


def _place(text: str | None) -> Place | None:
    """The place that a link names; nonsense is the first page."""
    at, _, number = (text or "").rpartition("_")
    try:
        place = datetime.fromisoformat(at), int(number)
    except ValueError:
        return None
    return place if place[0].tzinfo is not None and 0 <= place[1] < 2**63 else None
