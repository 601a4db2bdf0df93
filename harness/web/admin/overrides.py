"""Overrides of resources in the admin: set and cleared by the operators' verbs, with a reason.

The form judges nothing itself: policy.resources and engine.operate.resources do, for the command line as well.
"""

from datetime import datetime
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.models import DELETION, LogEntry
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminSplitDateTimeWidget, UnfoldAdminTextInputWidget

from harness.engine import operate
from harness.policy.errors import HarnessError
from harness.policy.resources import FIELDS, read
from harness.store import staff
from harness.store.models import Override
from harness.web.admin import reasoned
from harness.web.admin.inspected import Settable
from harness.web.admin.scope import person_of

VALUES = (
    "A number, on or off, a limiter (fixed, csl, aimd, gradient), or none: no such limit. "
    "capacity 0: nothing uses it. What is under way goes on."
)


class OverrideForm(forms.ModelForm):  # type: ignore[type-arg]  # it isn't generic when it runs
    """One field of one resource, with why."""

    resource = forms.ChoiceField(widget=UnfoldAdminSelectWidget)
    field = forms.ChoiceField(choices=[(name, name) for name in FIELDS], widget=UnfoldAdminSelectWidget)
    value = forms.CharField(max_length=100, widget=UnfoldAdminTextInputWidget, help_text=VALUES)
    until = forms.SplitDateTimeField(
        required=False, widget=UnfoldAdminSplitDateTimeWidget, help_text="UTC. Empty: until someone clears it."
    )
    reason = forms.CharField(
        max_length=operate.REASON_MAX_CHARS,
        widget=UnfoldAdminTextInputWidget,
        help_text="Why: kept in the audit, with your name.",
    )

    class Meta:
        model = Override
        fields = ("resource", "field", "value", "until", "reason")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        names = sorted(settings.HARNESS_TOPOLOGY.resources)
        self.fields["resource"].choices = [(name, name) for name in names]  # type: ignore[attr-defined]  # a ChoiceField

    def clean(self) -> dict[str, Any]:
        """Refuse what the verb would refuse, at the field."""
        said: dict[str, Any] = super().clean() or {}
        if said.get("resource") and said.get("field") and said.get("value"):
            try:
                with staff.own_connection(None) as connection:
                    changes = {said["field"]: read(said["value"])}
                    operate.check_resource(connection, said["resource"], changes, until=said.get("until"))
            except HarnessError as error:
                self.add_error("until" if error.field == "until" else "value", error.message)
        return said


class OverrideAdmin(Settable):
    """Overrides, those in force and those that ended. To delete one is to clear it; the row stays."""

    tenant_path = None
    may_add = may_delete = True
    form = OverrideForm
    empty = "Every resource is as resources.toml says."
    list_display = ("resource", "field", "shown", "author", "reason", "began", "ends", "act")

    def save_model(self, request: HttpRequest, obj: Override, form: Any, change: bool) -> None:
        """Set it by the verb, over a connection of its own; the list shows the row that it made."""
        said = form.cleaned_data
        with staff.own_connection(None) as connection:
            operate.set_resource(
                connection,
                said["resource"],
                {said["field"]: read(said["value"])},
                actor=person_of(request),
                reason=said["reason"],
                until=said["until"],
            )
        obj.pk = Override.objects.get(resource=said["resource"], field=said["field"], ended_at=None).pk

    def construct_change_message(self, request: HttpRequest, form: Any, formsets: Any, add: bool = False) -> str:
        """Keep the value and the reason in the admin's log too."""
        return f"Set to {form.cleaned_data['value']}: {form.cleaned_data['reason']}"

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Confirm (GET) or clear (POST), with a reason."""
        override = self.get_object(request, object_id)
        if override is None or not in_force(override):
            raise Http404("there is no such override in force")
        if not self.has_delete_permission(request, override):
            raise PermissionDenied
        return reasoned.confirm(
            self,
            request,
            f"clear override {override.pk}",
            verb="Clear",
            title=f"Clear {override}?",
            what=f"{override.author} set it to {self.shown(override)}: {override.reason} Within 5 seconds it is what "
            "resources.toml says again.",
            do=lambda why: self._clear(request, override, why),
        )

    def _clear(self, request: HttpRequest, override: Override, reason: str) -> None:
        try:
            with staff.own_connection(None) as connection:
                done = operate.clear_resource(
                    connection, override.resource, [override.field], actor=person_of(request), reason=reason
                )
        except HarnessError as error:
            messages.error(request, error.message)
            return
        LogEntry.objects.log_actions(
            int(request.user.pk or 0), [override], DELETION, f"Cleared: {reason}", single_object=True
        )
        messages.success(request, f"{override.resource}: {done}.")

    @admin.display(description="value")
    def shown(self, override: Override) -> str:
        """Return the value as people read it."""
        return operate.value_shown(override.value, override.field)

    @admin.display(description="since (UTC)", ordering="created_at")
    def began(self, override: Override) -> datetime:
        """Return since when."""
        return override.created_at

    @admin.display(description="until (UTC)")
    def ends(self, override: Override) -> datetime | str:
        """Return when it ended, or ends by itself."""
        return override.ended_at or override.until or "it is cleared"

    @admin.display(description="")
    def act(self, override: Override) -> SafeString | str:
        """Return a link to clear it, to who may; or that it is over."""
        if not in_force(override):
            return "over"
        return format_html('<a href="{}">Clear</a>', reverse("admin:store_override_delete", args=(override.pk,)))


def in_force(override: Override) -> bool:
    """Whether it still holds."""
    return override.ended_at is None and (override.until is None or override.until > timezone.now())
