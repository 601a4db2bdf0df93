"""Limits in the admin: a tenant's weight and caps, and its quotas. Set by the operators' verbs, with a reason.

The forms judge nothing themselves: policy.allowance and engine.operate.limits do, for the command line as well.
"""

from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.models import DELETION, LogEntry
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from unfold.widgets import UnfoldAdminTextInputWidget

from harness.engine import operate
from harness.policy import allowance
from harness.policy.errors import HarnessError, Invalid
from harness.store import keys, staff
from harness.store.models import Quota, Tenant
from harness.web.admin import reasoned
from harness.web.admin.filters import ByTenant
from harness.web.admin.inspected import Settable
from harness.web.admin.scope import person_of, scope_of

WHY = "Why: kept in the audit, with your name."


class Judged(forms.CharField):
    """A field whose text a rule of policy.allowance reads, so that form and command say the same."""

    def __init__(self, rule: Callable[[str], float], label: str, help_text: str) -> None:
        super().__init__(label=label, help_text=help_text, widget=UnfoldAdminTextInputWidget)
        self._rule = rule

    def clean(self, value: Any) -> Any:
        """Return the number. Raises: ValidationError with the field and the fix."""
        text = super().clean(value)
        try:
            return self._rule(text)
        except Invalid as error:
            raise ValidationError(error.message) from None


def _count(field: str, label: str, help_text: str) -> Judged:
    return Judged(lambda text: allowance.count(text, field), label, help_text)


class Reasoned(forms.ModelForm):  # type: ignore[type-arg]  # it isn't generic when it runs
    """A form that asks why, last."""

    reason = forms.CharField(max_length=operate.REASON_MAX_CHARS, widget=UnfoldAdminTextInputWidget, help_text=WHY)


class TenantForm(Reasoned):
    """A tenant with its limits."""

    name = forms.CharField(widget=UnfoldAdminTextInputWidget)
    weight = Judged(allowance.weight, "Weight", "Its share against others: 1 is the usual, 2 twice as much.")
    cap = _count("cap", "Cap", "Most of its tasks in flight. 0: nothing starts. What runs goes on when it is lowered.")
    backlog_quota = _count("backlog_quota", "Backlog quota", "Most unfinished tasks. 0: nothing is accepted.")
    top_priority = forms.TypedChoiceField(
        choices=[(number, f"P{number}") for number in range(4)], coerce=int, help_text="The most urgent it may ask for."
    )

    degrade = forms.TypedChoiceField(
        choices=[("True", "yes"), ("False", "no")],
        coerce=allowance.degrade,
        help_text="Cheaper forms of its work under pressure. no: always whole.",
    )

    class Meta:
        model = Tenant
        fields = ("name", "weight", "cap", "backlog_quota", "top_priority", "degrade")

    def clean_name(self) -> str:
        """Refuse a name that no command could say."""
        name: str = self.cleaned_data["name"]
        try:
            keys.check_name(name)
        except Invalid as error:
            raise ValidationError(error.message) from None
        return name


class TenantAdmin(Settable):
    """Tenants. One is deleted by `manage.py tenant delete` alone."""

    tenant_path = "id"
    may_add = may_change = True
    form = TenantForm
    ordering = ("name",)
    list_display = ("name", "weight", "cap", "backlog_quota", "urgency", "degrade", "created_at")
    search_fields = ("name",)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Keep a tenant's limits from its own admins."""
        return scope_of(request).everything and super().has_change_permission(request, obj)

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """Begin with the defaults of the table."""
        return {"weight": 1.0, "cap": 1000, "backlog_quota": 100_000, "top_priority": 1, "degrade": True}

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Keep a name: commands and people know the tenant by it."""
        return ("name",) if obj is not None else ()

    def save_model(self, request: HttpRequest, obj: Tenant, form: Any, change: bool) -> None:
        """Change it by the verb, over a connection of its own; a new one is made first, with its limits."""
        said = form.cleaned_data
        wanted = {name: said[name] for name in ("weight", "cap", "backlog_quota", "top_priority", "degrade")}
        if not change:
            made = keys.create_tenant(said["name"], **wanted)
            obj.pk = made.id
            return
        with staff.own_connection(None) as connection:
            operate.set_tenant(connection, obj.name, actor=person_of(request), reason=said["reason"], **wanted)

    def construct_change_message(self, request: HttpRequest, form: Any, formsets: Any, add: bool = False) -> str:
        """Keep the reason in the admin's log too."""
        return _told(form, add)

    @admin.display(description="top priority")
    def urgency(self, tenant: Tenant) -> str:
        """Return P0 to P3."""
        return f"P{tenant.top_priority}"


class QuotaForm(Reasoned):
    """A tenant's cap on a pool or resource that exists."""

    cap = _count("cap", "Cap", "Tasks in flight, or how many of the resource. 0: nothing of it starts.")

    class Meta:
        model = Quota
        fields = ("tenant", "scope", "name", "cap")

    def clean(self) -> dict[str, Any]:
        """Refuse a name that the topology doesn't have."""
        said: dict[str, Any] = super().clean() or {}
        if said.get("scope") and said.get("name"):
            try:
                operate.check_quota(said["scope"], said["name"])
            except Invalid as error:
                self.add_error("name", error.message)
        return said


class QuotaAdmin(Settable):
    """Quotas. One on another pool or resource is another one: of a quota only the cap changes."""

    may_add = may_change = may_delete = True
    form = QuotaForm
    list_display = ("tenant", "scope", "name", "cap")
    list_select_related = ("tenant",)
    list_filter = (ByTenant,)
    autocomplete_fields = ("tenant",)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Keep what it is on."""
        return ("tenant", "scope", "name") if obj is not None else ()

    def save_model(self, request: HttpRequest, obj: Quota, form: Any, change: bool) -> None:
        """Set it by the verb, over a connection of its own."""
        with staff.own_connection(None) as connection:
            operate.set_quota(
                connection,
                obj.tenant.name,
                obj.scope,
                obj.name,
                form.cleaned_data["cap"],
                actor=person_of(request),
                reason=form.cleaned_data["reason"],
            )
        obj.pk = Quota.objects.get(tenant=obj.tenant, scope=obj.scope, name=obj.name).pk

    def construct_change_message(self, request: HttpRequest, form: Any, formsets: Any, add: bool = False) -> str:
        """Keep the reason in the admin's log too."""
        return _told(form, add)

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Confirm (GET) or clear (POST), with a reason."""
        quota = self.get_object(request, object_id)
        if quota is None:
            raise Http404("there is no such quota")
        if not self.has_delete_permission(request, quota):
            raise PermissionDenied
        return reasoned.confirm(
            self,
            request,
            f"clear quota {quota.pk}",
            verb="Clear",
            title=f"Clear the quota of {quota.tenant} on {quota.scope} {quota.name}?",
            what=f"It is {quota.cap} now. Without it only the tenant's own cap holds there.",
            do=lambda why: self._clear(request, quota, why),
        )

    def _clear(self, request: HttpRequest, quota: Quota, reason: str) -> None:
        try:
            with staff.own_connection(None) as connection:
                operate.clear_quota(
                    connection, quota.tenant.name, quota.scope, quota.name, actor=person_of(request), reason=reason
                )
        except HarnessError as error:
            messages.error(request, error.message)
            return
        LogEntry.objects.log_actions(
            int(request.user.pk or 0), [quota], DELETION, f"Cleared: {reason}", single_object=True
        )
        messages.success(request, "The quota is cleared.")


def _told(form: Any, add: bool) -> str:
    changed = [name for name in form.changed_data if name != "reason"]
    what = "Made" if add else f"Set {', '.join(changed)}" if changed else "Set nothing new"
    return f"{what}: {form.cleaned_data['reason']}"
