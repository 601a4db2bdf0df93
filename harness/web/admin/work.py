"""Runs, attempts, trace, leases and worker sessions: to look at."""

from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from harness.store.models import Attempt, Lease, Run, Task, TraceEvent, WorkerSession
from harness.web.admin import line
from harness.web.admin.filters import ByEvent, ByPool, ByPriority, ByTenant, ByVerdict, Claimed, Ended
from harness.web.admin.inspected import Inspected
from harness.web.admin.marks import labelled, shown
from harness.web.admin.tasks import TRACEBACKS, as_id, as_uuid, by_of, took, words_of


class _OfTask(Inspected):
    """Rows that belong to a task: found by its id, named by a link to it."""

    search_fields = ("task__public_id",)
    search_help_text = "A task's id"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).prefetch_related("tenant", "task")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.strip()
        if not term:
            return queryset, False
        request.harness_exact = True  # type: ignore[attr-defined]  # the list reads it
        number = as_id(term)
        if public := as_uuid(term):
            number = Task.objects.filter(public_id=public).values_list("id", flat=True).first()
        return (queryset.none() if number is None else queryset.filter(task_id=number)), False

    @admin.display(description="task")
    def of_task(self, row: Any) -> SafeString:
        return format_html(
            '<a href="{}" title="{}"><span class="h-what">{}</span> <code class="h-id">{}</code></a>',
            reverse("admin:store_task_change", args=(row.task_id,)),
            row.task.public_id,
            row.task.kind,
            str(row.task.public_id)[:8],
        )

    @admin.display(description="tenant")
    def whose(self, row: Any) -> str:
        return str(row.tenant)


class AttemptAdmin(_OfTask):
    """Attempts."""

    list_display = ("of_task", "whose", "verdict", "error_class", "message_begin", "ran", "slot", "ended")
    list_filter = (ByVerdict, ByTenant)
    list_display_links: ClassVar[tuple[str, ...]] = ("verdict",)

    def get_exclude(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Keep tracebacks from who may not see them."""
        return () if request.user.has_perm(TRACEBACKS) else ("traceback",)

    @admin.display(description="message")
    def message_begin(self, attempt: Attempt) -> str:
        """Return the message's first line."""
        return (attempt.message or "–").partition("\n")[0][:120]

    @admin.display(description="ran")
    def ran(self, attempt: Attempt) -> str:
        """Return how long it ran."""
        return took(attempt)

    @admin.display(description="slot time")
    def slot(self, attempt: Attempt) -> str:
        """Return what it was charged."""
        return line.duration(attempt.slot_s)


class TraceEventAdmin(_OfTask):
    """The trace, newest tasks first; one table, partitioned by day, with no index but (task, seq)."""

    keys = ("task_id", "seq")
    keys_from = "task"
    list_display = ("at", "of_task", "whose", "seq", "event", "became", "by", "said")
    list_filter = (ByEvent, ByTenant)
    list_display_links = None

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> None:
        """Nothing: no index finds an event by its id, and the task's page shows it."""

    def change_view(self, request: HttpRequest, object_id: str, *_: Any, **__: Any) -> HttpResponse:
        """Refuse, as above."""
        raise Http404("a trace event has no page of its own; its task's page shows it")

    @admin.display(description="actor")
    def by(self, event: TraceEvent) -> SafeString:
        """Return who did it."""
        return by_of(event.actor)

    @admin.display(description="state")
    def became(self, event: TraceEvent) -> SafeString:
        """Return the state after it."""
        return labelled(shown(event.to_state, event=event.event))

    @admin.display(description="said")
    def said(self, event: TraceEvent) -> str:
        """Return its data in one line."""
        return words_of(event.data)[:200]


class RunAdmin(Inspected):
    """Runs."""

    list_display = ("run", "whose", "size", "fanout_cap", "want", "made", "tasks")
    list_filter = (ByTenant,)
    search_fields = ("public_id",)
    search_help_text = "A run's id, or the beginning of its name"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Run]:
        """Leave out run 0, which means none."""
        rows: QuerySet[Run] = super().get_queryset(request)
        return rows.prefetch_related("tenant")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Run], search_term: str
    ) -> tuple[QuerySet[Run], bool]:
        """Find by id, or by name within the page's windows."""
        term = search_term.strip()
        if not term:
            return queryset, False
        if public := as_uuid(term):
            request.harness_exact = True  # type: ignore[attr-defined]  # the list reads it
            return queryset.filter(public_id=public), False
        return queryset.filter(name__startswith=term), False

    @admin.display(description="run")
    def run(self, run: Run) -> SafeString:
        """Return the name and the id."""
        return format_html(
            '<span class="h-what">{}</span> <code class="h-id">{}</code>', run.name or "Run", run.public_id
        )

    @admin.display(description="tenant")
    def whose(self, run: Run) -> str:
        """Return the tenant's name."""
        return str(run.tenant)

    @admin.display(description="submitted (UTC)")
    def made(self, run: Run) -> str:
        """Return when it was submitted."""
        return f"{run.created_at:%Y-%m-%d %H:%M:%S}"

    @admin.display(description="tasks")
    def tasks(self, run: Run) -> SafeString:
        """Return a link to its tasks."""
        return format_html('<a href="{}?q={}">Its tasks</a>', reverse("admin:store_task_changelist"), run.public_id)


class LeaseAdmin(Inspected):
    """Leases: what is in flight."""

    list_display = ("id", "pool", "via", "whose", "urgency", "kind", "n", "released_at", "claimed_at", "zombie_since")
    list_filter = (ByPool, ByTenant, ByPriority, Claimed)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Lease]:
        """Fetch the tenants' names beside the page."""
        rows: QuerySet[Lease] = super().get_queryset(request)
        return rows.prefetch_related("tenant")

    @admin.display(description="tenant")
    def whose(self, lease: Lease) -> str:
        """Return the tenant's name."""
        return str(lease.tenant)

    @admin.display(description="priority")
    def urgency(self, lease: Lease) -> str:
        """Return P0 to P3."""
        return f"P{lease.priority}"

    def get_exclude(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Keep the token to the worker that holds it."""
        return ("token",)


class WorkerSessionAdmin(Inspected):
    """Worker sessions. They serve every tenant, so a person with one tenant sees none."""

    tenant_path = None
    list_display = ("process", "slots", "connections", "started_at", "beat_at", "draining", "ended_at")
    list_filter = (Ended,)
    ordering = ("-started_at",)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> Any:
        """Page by number: one row a process life, without an id to go by."""
        from unfold.views import ChangeList

        return ChangeList

    @admin.display(description="process")
    def process(self, session: WorkerSession) -> str:
        """Return host and process id."""
        return f"{session.host}:{session.pid}"

    @admin.display(description="slots")
    def slots(self, session: WorkerSession) -> str:
        """Return the pools with their slots."""
        return ", ".join(f"{pool} {n}" for pool, n in sorted(session.pools.items()))
