"""The admin's site: what is registered where, and its first page.

To show a model of your own, add a line to REGISTERED: the model, how its rows lead to a tenant, and what a list shows.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import Group, User
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern, URLResolver
from django.utils import timezone
from unfold.sites import UnfoldAdminSite

from harness.store import models
from harness.store.sessions import DEAD_AFTER_S
from harness.web.admin import letters, resources, retries
from harness.web.admin.control import ApiKeyAdmin, PauseAdmin, in_force
from harness.web.admin.inspected import Listed
from harness.web.admin.limits import QuotaAdmin, TenantAdmin
from harness.web.admin.logins import GroupAdmin, LoginAdmin
from harness.web.admin.marks import mark
from harness.web.admin.overrides import OverrideAdmin
from harness.web.admin.pressure import LevelChangeAdmin
from harness.web.admin.scope import held, scope_of
from harness.web.admin.tasks import TaskAdmin
from harness.web.admin.work import AttemptAdmin, LeaseAdmin, RunAdmin, TraceEventAdmin, WorkerSessionAdmin

FAILED_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Entry:
    """One model in the admin: its place in the menu, an icon, and either a class or the columns of a plain list.

    `tenant`: the path to the tenant; None keeps the rows to who sees every tenant. `exact`: columns that a search may
    ask for, as they are; each needs an index.
    """

    model: type[Model]
    group: str
    icon: str
    shown: type[Any] | tuple[str, ...]
    tenant: str | None = "tenant_id"
    exact: tuple[str, ...] = ()
    plural: str | None = None  # where the model's own doesn't read well
    key: str = "id"
    key_from: str | None = None  # the table that gives the key out, if another


REGISTERED = (
    Entry(models.Task, "Work", "task_alt", TaskAdmin),
    Entry(models.Run, "Work", "account_tree", RunAdmin),
    Entry(
        models.Approval,
        "Work",
        "how_to_vote",
        (
            "asked_at",
            "tenant",
            "task_id",
            "prompt",
            "open",
            "verdict",
            "choice",
            "decided_by",
            "decided_at",
            "waited_s",
        ),
    ),
    Entry(models.Attempt, "Work", "replay", AttemptAdmin),
    Entry(models.TraceEvent, "Work", "timeline", TraceEventAdmin),
    Entry(
        models.Schedule,
        "Work",
        "event_repeat",
        ("name", "tenant", "kind", "cron", "zone", "enabled", "next_at", "last_fired_at", "stopped_because"),
        exact=("public_id",),
    ),
    Entry(
        models.Document,
        "Files",
        "description",
        ("name", "tenant", "title", "content_type", "size_bytes", "chunks", "updated_at"),
        exact=("public_id",),
    ),
    Entry(
        models.Artifact,
        "Files",
        "attach_file",
        ("name", "tenant", "content_type", "bytes", "state", "created_at", "expires_at"),
        exact=("public_id",),
    ),
    Entry(models.Lease, "Slots", "lock_clock", LeaseAdmin),
    Entry(models.WorkerSession, "Slots", "memory", WorkerSessionAdmin),
    Entry(models.Override, "Resources", "edit_note", OverrideAdmin),
    Entry(
        models.LimitChange,
        "Resources",
        "show_chart",
        ("at", "resource", "old", "new", "mode", "reason"),
        None,
        exact=("resource",),
        plural="changes of limits",
    ),
    Entry(models.Tenant, "Tenants", "groups", TenantAdmin),
    Entry(models.Quota, "Tenants", "tune", QuotaAdmin),
    Entry(models.ApiKey, "Tenants", "key", ApiKeyAdmin, plural="API keys"),
    Entry(
        models.Budget,
        "Tenants",
        "savings",
        ("tenant", "day_usd", "spent_day_usd", "month_usd", "spent_month_usd", "soft_ratio", "counted_at"),
        key="tenant_id",
        key_from="tenant",
    ),
    Entry(models.UsageDay, "Tenants", "bar_chart", ("day", "tenant", "attempts", "tokens", "unpriced_tokens", "usd")),
    Entry(models.Pause, "Control", "pause_circle", PauseAdmin),
    Entry(
        models.DoorAnswer,
        "Control",
        "door_front",
        ("at", "tenant", "pool", "priority", "signature", "code", "reason", "tasks"),
        None,
        exact=("code", "reason"),
        plural="refused at the door",
    ),
    Entry(models.LevelChange, "Control", "speed", LevelChangeAdmin, plural="changes of the level"),
    Entry(
        models.AuditEntry,
        "Control",
        "history_edu",
        ("at", "ended_at", "actor", "verb", "subject", "reason"),
        None,
        plural="audit entries",
    ),
    Entry(
        models.AuditFinding,
        "Control",
        "fact_check",
        ("found_at", "rule", "level", "subject", "seen", "seen_at", "repaired_at", "closed_at", "how"),
        None,
        exact=("rule", "subject"),
    ),
    Entry(User, "People", "person", LoginAdmin),
    Entry(Group, "People", "group", GroupAdmin),
)


class HarnessAdminSite(UnfoldAdminSite):  # type: ignore[misc]  # Unfold has no types
    """The admin at /admin/."""

    index_template = "harness/admin/index.html"
    index_title = "Overview"
    empty_value_display = "–"
    enable_nav_sidebar = True

    def each_context(self, request: HttpRequest) -> dict[str, Any]:
        """Leave colours to admin.css: as Unfold's inline style they would need an exception in the CSP."""
        return {**super().each_context(request), "colors": None, "border_radius": None}

    def get_urls(self) -> list[URLPattern | URLResolver]:
        """Add the pages that belong to no model."""
        own = (letters.urls, resources.urls, retries.urls)
        return [*(page for urls in own for page in urls(self.admin_view, self.each_context)), *super().get_urls()]

    def search(self, request: HttpRequest) -> HttpResponse:
        """Refuse: Unfold would keep one person's results in a cache for the next."""
        raise Http404

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show what is in flight, what is paused, and what failed last."""
        answer: HttpResponse = super().index(request, {**(extra_context or {}), **self._overview(request)})
        return answer

    def _overview(self, request: HttpRequest) -> dict[str, Any]:
        everything = scope_of(request).everything
        in_flight: dict[str, int] = {}
        for pool in self._rows(models.Lease, request).values_list("pool", flat=True)[:10_000]:
            in_flight[pool] = in_flight.get(pool, 0) + 1
        slots: dict[str, int] = {}
        sessions = models.WorkerSession.objects.filter(
            ended_at=None, beat_at__gt=timezone.now() - timedelta(seconds=DEAD_AFTER_S)
        )
        if everything:
            for session in sessions:
                for pool, n in session.pools.items():
                    slots[pool] = slots.get(pool, 0) + n
        names = sorted(slots.keys() | in_flight.keys())
        dead = self._rows(models.Task, request).filter(dead_at__isnull=False).prefetch_related("tenant")
        failed = dead.order_by("-dead_at", "-id")[:FAILED_SHOWN]
        return {
            "everything": everything,
            "pools": [(name, in_flight.get(name, 0), slots.get(name)) for name in names],
            "pauses": list(in_force(self._rows(models.Pause, request))[:50]),
            "failed": [(task, mark(task.state)) for task in failed],
        }

    def _rows(self, model: type[Any], request: HttpRequest) -> QuerySet[Any]:
        entry = next(entry for entry in REGISTERED if entry.model is model)
        path = getattr(entry.shown, "tenant_path", entry.tenant)
        if not self._registry[model].has_view_permission(request):
            return model._default_manager.none()  # type: ignore[no-any-return]  # a manager of any model
        return held(model._default_manager.all(), request, path)


def _plain(entry: Entry) -> type[Listed]:
    columns = tuple(entry.shown) if isinstance(entry.shown, tuple) else ()
    return type(
        f"{entry.model.__name__}Admin",
        (Listed,),
        {
            "__doc__": "Rows to look at.",
            "tenant_path": entry.tenant,
            "list_display": columns,
            "search_fields": entry.exact,
            "exact": entry.exact,
            "keys": (entry.key,),
            "keys_from": entry.key_from,
        },
    )


site = HarnessAdminSite(name="admin")
for _entry in REGISTERED:
    if _entry.plural:
        _entry.model._meta.verbose_name_plural = _entry.plural
    site.register(_entry.model, _plain(_entry) if isinstance(_entry.shown, tuple) else _entry.shown)
