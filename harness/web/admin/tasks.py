"""Tasks: the list at a million rows; a task's page with states, why it waits, attempts, errors, lease and verbs."""

import uuid
from typing import Any, ClassVar

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet, TextField
from django.db.models.functions import Cast, Left
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from harness.policy.holds import CHILDREN
from harness.policy.steps import EVENTS as OF_STEPS
from harness.store.models import (
    Attempt,
    Gathering,
    Lease,
    LeaseMember,
    Run,
    Step,
    Task,
    TaskBody,
    TraceEvent,
    WorkerSession,
)
from harness.web.admin import bulk, decisions, foresee, line, verbs, why
from harness.web.admin.filters import ByKind, ByPool, ByPriority, ByState, ByTenant
from harness.web.admin.inspected import Inspected
from harness.web.admin.marks import labelled, mark, shown
from harness.web.admin.paging import Keyset
from harness.web.admin.scope import scope_of

SHOWN_CHARS = 4000  # of a payload or a result
SHOWN_EVENTS = 200  # the newest; the list of the trace has all
SHOWN_ATTEMPTS = 50
SHOWN_STEPS = 100  # the last ones
TRACEBACKS = "store.see_tracebacks"


def as_uuid(text: str) -> uuid.UUID | None:
    """Return the UUID that a text is, if it is one."""
    try:
        return uuid.UUID(text)
    except ValueError:
        return None


def as_id(text: str) -> int | None:
    """Return the id that a text is, if it is one.

    >>> as_id("17"), as_id("99999999999999999999"), as_id("-1")
    (17, None, None)
    """
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


class TaskList(Keyset):
    """The list of tasks, with the bar of verbs on many: `bulk_bar` is what its template needs."""

    def get_results(self, request: HttpRequest) -> None:
        """Fetch one page, and note what the list is narrowed by."""
        super().get_results(request)
        kept = [(name, request.GET[name]) for name in bulk.FILTERS if request.GET.get(name)]
        self.bulk_bar = {
            "verbs": bulk.offered(request),
            "url": reverse("admin:store_task_bulk"),
            "kept": kept,
            "filtered": bool(kept) or scope_of(request).tenant is not None,
        }


class TaskAdmin(Inspected):
    """Tasks."""

    list_display = ("stands", "what", "whose", "urgency", "pool", "attempts_used", "made", "ended")
    list_filter = (ByState, ByTenant, ByPriority, ByPool, ByKind)
    search_fields = ("public_id",)
    search_help_text = "A task's or run's id, or the beginning of a kind"
    list_display_links: ClassVar[tuple[str, ...]] = ("what",)
    list_before_template = "harness/admin/bulk_bar.html"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Task]:
        """Fetch the tenants' names beside the page, not joined to the table."""
        rows: QuerySet[Task] = super().get_queryset(request)
        return rows.prefetch_related("tenant")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Task], search_term: str
    ) -> tuple[QuerySet[Task], bool]:
        """Find by what an index serves; a kind within the page's windows."""
        term = search_term.strip()
        if not term:
            return queryset, False
        if public := as_uuid(term):
            request.harness_exact = True  # type: ignore[attr-defined]  # the list reads it
            run = Run.objects.filter(public_id=public).values_list("id", flat=True).first()
            return (queryset.filter(run_id=run) if run else queryset.filter(public_id=public)), False
        if (number := as_id(term)) is not None:
            request.harness_exact = True  # type: ignore[attr-defined]  # as above
            return queryset.filter(id=number), False
        return queryset.filter(kind__startswith=term), False

    @admin.display(description="state")
    def stands(self, task: Task) -> SafeString:
        """Return the state with its mark."""
        return labelled(shown(task.state, task.holds))

    @admin.display(description="task")
    def what(self, task: Task) -> SafeString:
        """Return the kind and the id."""
        return format_html('<span class="h-what">{}</span> <code class="h-id">{}</code>', task.kind, task.public_id)

    @admin.display(description="tenant")
    def whose(self, task: Task) -> str:
        """Return the tenant's name."""
        return str(task.tenant)

    @admin.display(description="priority")
    def urgency(self, task: Task) -> str:
        """Return P0 to P3."""
        return f"P{task.priority}"

    @admin.display(description="submitted (UTC)")
    def made(self, task: Task) -> str:
        """Return when it was submitted."""
        return f"{task.created_at:%Y-%m-%d %H:%M:%S}"

    @admin.display(description="took")
    def ended(self, task: Task) -> str:
        """Return how long it took from submission to its end."""
        if task.finished_at is None:
            return "–"
        return line.duration((task.finished_at - task.created_at).total_seconds())

    def get_list_display(self, request: HttpRequest) -> tuple[str, ...]:
        """Put a box to tick before each state, for who may act."""
        return ("ticked", *self.list_display[1:]) if bulk.offered(request) else self.list_display

    @admin.display(description="state")
    def ticked(self, task: Task) -> SafeString:
        """Return the state behind a box to tick, which belongs to the bar above the list."""
        return format_html(
            '<span class="h-state"><input type="checkbox" class="h-tick" form="h-bulk" name="task" value="{}"'
            ' aria-label="Tick {}">{}</span>',
            task.pk,
            task.public_id,
            labelled(shown(task.state, task.holds)),
        )

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[TaskList]:
        """Page by key, with the bar of verbs above."""
        return TaskList

    def get_urls(self) -> list[URLPattern]:
        """Add the verbs' pages."""
        guard = self.admin_site.admin_view
        act = path("<int:task_id>/do/<str:verb>/", guard(self.act), name="store_task_act")
        decide = path("<int:task_id>/decide/<str:verb>/", guard(self.decide), name="store_task_decide")
        return [path("bulk/", guard(self.act_on_many), name="store_task_bulk"), act, decide, *super().get_urls()]

    def act_on_many(self, request: HttpRequest) -> HttpResponse:
        """Confirm or do a verb on many tasks."""
        if not (self.has_view_permission(request) and bulk.offered(request)):
            raise PermissionDenied
        context = {**self.admin_site.each_context(request), "opts": self.opts}
        return bulk.view(request, self.get_queryset(request), context)

    def act(self, request: HttpRequest, task_id: int, verb: str) -> HttpResponse:
        """Confirm or do a verb."""
        task = self.get_object(request, str(task_id))
        return verbs.view(request, task, verb, {**self.admin_site.each_context(request), "opts": self.opts})

    def decide(self, request: HttpRequest, task_id: int, verb: str) -> HttpResponse:
        """Confirm or do a verb on what a task asks."""
        task = self.get_object(request, str(task_id))
        return decisions.view(request, task, verb, {**self.admin_site.each_context(request), "opts": self.opts})

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show a task. There is no form: state is acted on, never edited."""
        if request.method not in {"GET", "HEAD"}:
            return HttpResponseNotAllowed(["GET", "HEAD"])
        number = as_id(object_id)
        task = self.get_queryset(request).filter(id=number).first() if number is not None else None
        if task is None:
            raise Http404("there is no such task")
        if not self.has_view_permission(request, task):
            raise PermissionDenied
        context = {**self.admin_site.each_context(request), **self._page(request, task), **(extra_context or {})}
        return TemplateResponse(request, "harness/admin/task.html", context)

    def _page(self, request: HttpRequest, task: Task) -> dict[str, Any]:
        # Steps have a table of their own, and would crowd out what led from state to state.
        trace = TraceEvent.objects.filter(task_id=task.pk).exclude(event__in=OF_STEPS)
        events = list(trace.order_by("-seq")[:SHOWN_EVENTS])[::-1]
        steps = list(Step.objects.filter(task_id=task.pk).defer("result").order_by("-ordinal")[: SHOWN_STEPS + 1])
        attempts = list(Attempt.objects.filter(task_id=task.pk).order_by("-release_no")[:SHOWN_ATTEMPTS])
        body = (
            TaskBody.objects.filter(task_id=task.pk)
            .values("error", "title", "tags")
            .annotate(
                input_text=Left(Cast("input", TextField()), SHOWN_CHARS + 1),
                output_text=Left(Cast("output", TextField()), SHOWN_CHARS + 1),
            )
            .first()
        ) or dict.fromkeys(("error", "title", "tags", "input_text", "output_text"))
        lease = self._lease(task)
        parts = line.line_of(events, timezone.now())
        rows = [(part, mark(part.state), line.duration(part.seconds)) for part in parts]
        folded = line.folded(len(rows))
        tracebacks = request.user.has_perm(TRACEBACKS)
        run = Run.objects.filter(id=task.run_id).first() if task.run_id else None
        return {
            "title": task.kind,
            "opts": self.opts,
            "task": task,
            "mark": mark(shown(task.state, task.holds)),
            "sentence": line.sentence(task, events, released=lease is not None, waiting=waiting_for(task)),
            "questions": decisions.of(task),
            "verbs": [
                *decisions.offered(request, task, released=lease is not None),
                *(
                    {
                        "label": verbs.label_of(name),
                        "help": verb.help,
                        "url": reverse("admin:store_task_act", args=(task.pk, name)),
                    }
                    for name, verb in verbs.offered(request, task)
                ),
            ],
            "parts": rows,
            "folded": folded,
            "parts_before": rows[:folded],
            "parts_shown": rows[folded:],
            "bar": line.bar_of(parts),
            "events": [
                (event, labelled(shown(event.to_state, event=event.event)), by_of(event.actor), words_of(event.data))
                for event in reversed(events)
            ],
            "more_events": len(events) == SHOWN_EVENTS,
            "trace_url": f"{reverse('admin:store_traceevent_changelist')}?q={task.public_id}",
            "attempts": [(attempt, took(attempt), attempt.traceback if tracebacks else None) for attempt in attempts],
            "steps": [step_of(step, running=task.state == "running") for step in steps[:SHOWN_STEPS][::-1]],
            "more_steps": len(steps) > SHOWN_STEPS,
            "tracebacks": tracebacks,
            "why": why.of(request, task.public_id),
            "name": body["title"],
            "tags": body["tags"],
            "error": told(body["error"]),
            "others": foresee.others(request, task, told(body["error"])),
            "input": cut(body["input_text"]),
            "output": cut(body["output_text"]),
            "lease": lease,
            "run": run,
            "run_url": reverse("admin:store_run_change", args=(run.pk,)) if run else None,
            "runs_tasks_url": f"{reverse('admin:store_task_changelist')}?q={run.public_id}" if run else None,
        }

    @staticmethod
    def _lease(task: Task) -> dict[str, Any] | None:
        member = LeaseMember.objects.filter(task_id=task.pk).values("lease_id").first()
        lease = Lease.objects.filter(id=member["lease_id"]).first() if member else None
        if lease is None:
            return None
        session = WorkerSession.objects.filter(uuid=lease.session).first() if lease.session else None
        return {"lease": lease, "session": session}


def waiting_for(task: Task) -> int | None:
    """Return for how many children a task waits, if it does."""
    waits = Gathering.objects.filter(task_id=task.pk).first() if task.holds == [CHILDREN] else None
    if waits is None:
        return None
    among = Q()
    for first, n in zip(waits.firsts, waits.counts, strict=True):
        among |= Q(id__gte=first, id__lt=first + n)
    return Task.objects.filter(among, parent_id=task.pk, finished_at__isnull=True).count()


def cut(text: str | None) -> tuple[str, bool] | None:
    """Return what of a payload is shown, and whether more is there."""
    return None if text is None else (text[:SHOWN_CHARS], len(text) > SHOWN_CHARS)


def told(error: Any) -> dict[str, str] | None:
    """Return an error's class and message; what has another shape is its own message.

    >>> told({"class": "timeout", "message": "no answer"}), told("broken"), told(None)
    ({'class': 'timeout', 'message': 'no answer'}, {'class': '', 'message': 'broken'}, None)
    """
    if error is None:
        return None
    if not isinstance(error, dict):
        return {"class": "", "message": str(error)}
    return {"class": str(error.get("class") or ""), "message": str(error.get("message") or error)}


def took(attempt: Attempt) -> str:
    """Return how long an attempt ran."""
    return line.duration((attempt.ended - attempt.started).total_seconds()) if attempt.started else "–"


def step_of(step: Step, *, running: bool) -> dict[str, Any]:
    """Return a step for the page: what it is called, how it stands, and how long it took."""
    took = ""
    if step.finished_at is not None:
        stands, like = "finished", "succeeded"
        took = line.duration((step.finished_at - step.began_at).total_seconds())
    else:
        stands, like = ("under way", "running") if running else ("not finished", "queued")
    if step.differed_at is not None:
        stands += ", but the code that came to it was another"
    return {"step": step, "mark": mark(like), "stands": stands, "took": took}


def by_of(actor: str) -> SafeString:
    """Return who did something, so that a worker's list of pools breaks between two of them.

    >>> by_of("worker llm+db")
    'worker llm+<wbr>db'
    """
    return format_html_join(mark_safe("+<wbr>"), "{}", ((part,) for part in actor.split("+")))


def words_of(data: Any) -> str:
    """Return a trace event's data in one line.

    >>> words_of({"reason": "too slow", "spent": 1}), words_of(None)
    ('reason: too slow · spent: 1', '')
    >>> words_of({"delay_s": 0.1593920835952276, "share": 1 / 3})
    'delay: 159 ms · share: 0.333'
    """
    if not isinstance(data, dict):
        return "" if data is None else str(data)
    return " · ".join(_said(name, value) for name, value in data.items() if value is not None)


def _said(name: str, value: Any) -> str:
    if isinstance(value, float) and name.endswith("_s"):
        name, value = name[:-2], line.duration(value)
    elif isinstance(value, float):
        value = f"{round(value, 3):.10g}"
    return f"{name.replace('_', ' ')}: {value}"
