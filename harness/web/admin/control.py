"""What people set: tenants, quotas, keys, pauses. Each change is in the admin's log with its author."""

from datetime import datetime
from typing import Any, ClassVar

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.widgets import (
    UnfoldAdminCheckboxSelectMultipleWidget,
    UnfoldAdminSplitDateTimeWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanWidget,
)

from harness.engine import operate
from harness.policy.errors import Conflict, HarnessError
from harness.policy.holds import OPERATOR
from harness.store import keys, staff
from harness.store.models import ApiKey, Pause, Run, Tenant
from harness.web.admin import reasoned
from harness.web.admin.filters import ByTenant, Revoked
from harness.web.admin.inspected import Settable
from harness.web.admin.scope import person_of, scope_of
from harness.web.admin.tasks import as_uuid


class KeyForm(forms.ModelForm):  # type: ignore[type-arg]  # it isn't generic when it runs
    """What a new key is for."""

    scopes = forms.MultipleChoiceField(
        choices=[(scope, scope) for scope in keys.SCOPES],
        initial=list(keys.SCOPES),
        widget=UnfoldAdminCheckboxSelectMultipleWidget,
    )
    label = forms.CharField(
        max_length=200, required=False, help_text="What it is for.", widget=UnfoldAdminTextInputWidget
    )

    class Meta:
        model = ApiKey
        fields = ("tenant", "label", "scopes")


class ApiKeyAdmin(Settable):
    """Keys: made once, shown once, revoked for good."""

    may_add = True
    form = KeyForm
    list_display = ("prefix", "tenant", "scopes_named", "label", "created_at", "revoked_at", "act")
    list_filter = (Revoked, ByTenant)
    list_select_related = ("tenant",)
    search_fields = ("prefix", "label")
    autocomplete_fields: ClassVar[tuple[str, ...]] = ("tenant",)

    def get_exclude(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Keep the hash to the database."""
        return ("hash",)

    @admin.display(description="scopes")
    def scopes_named(self, key: ApiKey) -> str:
        """Return the scopes."""
        return ", ".join(key.scopes)

    @admin.display(description="")
    def act(self, key: ApiKey) -> SafeString | str:
        """Return a link to revoke it."""
        if key.revoked_at is not None:
            return ""
        return format_html('<a href="{}">Revoke</a>', reverse("admin:store_apikey_revoke", args=(key.pk,)))

    def get_urls(self) -> list[URLPattern]:
        """Add the page that revokes."""
        page = path("<int:key_id>/revoke/", self.admin_site.admin_view(self.revoke), name="store_apikey_revoke")
        return [page, *super().get_urls()]

    def save_model(self, request: HttpRequest, obj: ApiKey, form: Any, change: bool) -> None:
        """Make the key, by the same function as the command; the whole key goes to this answer alone."""
        made = keys.create_key(obj.tenant.name, scopes=form.cleaned_data["scopes"], label=form.cleaned_data["label"])
        request.harness_key = made  # type: ignore[attr-defined]  # response_add shows it
        row = ApiKey.objects.get(prefix=made.split("_")[1])
        obj.pk, obj.prefix = row.pk, row.prefix

    def response_add(self, request: HttpRequest, obj: ApiKey, post_url_continue: str | None = None) -> HttpResponse:
        """Show the key, once: not after a redirect, so that it is stored nowhere."""
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": "Keep this key now",
            "key": request.harness_key,  # type: ignore[attr-defined]  # from save_model
            "tenant": obj.tenant,
            "back": reverse("admin:store_apikey_changelist"),
        }
        answer = TemplateResponse(request, "harness/admin/key.html", context)
        answer["Cache-Control"] = "no-store"
        return answer

    def revoke(self, request: HttpRequest, key_id: int) -> HttpResponse:
        """Confirm (GET) or revoke (POST)."""
        key = self.get_object(request, str(key_id))
        if key is None:
            raise Http404("there is no such key")
        if not self._may(request, "change"):
            raise PermissionDenied
        return reasoned.confirm(
            self,
            request,
            f"revoke key {key.pk}",
            verb="Revoke",
            title=f"Revoke the key {key.prefix} of {key.tenant}?",
            what="It is refused from now on, for good. Work that it has submitted goes on.",
            do=lambda why: self._revoke(request, key, why),
        )

    def _revoke(self, request: HttpRequest, key: ApiKey, reason: str) -> None:
        try:
            keys.revoke_key(key.prefix)
        except Conflict:
            messages.info(request, "Nothing was left to do: it was revoked before.")
            return
        except HarnessError as error:
            messages.error(request, error.message)
            return
        LogEntry.objects.log_actions(int(request.user.pk or 0), [key], CHANGE, f"Revoked: {reason}", single_object=True)
        messages.success(request, f"{key.prefix} is revoked.")


class PauseForm(forms.ModelForm):  # type: ignore[type-arg]  # it isn't generic when it runs
    """A pause. A tenant is named by its name, a run by its id."""

    reason = forms.CharField(max_length=500, widget=UnfoldAdminTextInputWidget, help_text="Shown to everyone.")
    key = forms.CharField(
        max_length=200,
        label="What",
        widget=UnfoldAdminTextInputWidget,
        help_text="A pool (llm), a priority (p3), a pool's priority (llm.p3), a tenant's name, or a run's id.",
    )

    until = forms.SplitDateTimeField(
        required=False, widget=UnfoldAdminSplitDateTimeWidget, help_text="UTC. Empty: until someone resumes it."
    )

    force = forms.BooleanField(
        required=False, widget=UnfoldBooleanWidget, help_text="Needed to pause P0, of all pools or of one."
    )

    class Meta:
        model = Pause
        fields = ("scope", "key", "reason", "until", "force")

    def clean(self) -> dict[str, Any]:
        """Refuse a name that doesn't exist, and what an operator has paused already."""
        said: dict[str, Any] = super().clean() or {}
        scope, named = said.get("scope"), (said.get("key") or "").strip()
        if not scope or not named:
            return said
        pools = settings.HARNESS_TOPOLOGY.pools
        pool, _, priority = named.rpartition(".")
        found: str | None = None
        if scope == "pool":
            found = named if named in pools else None
        elif scope == "priority":
            found = named.lower() if named.lower() in {"p0", "p1", "p2", "p3"} else None
        elif scope == "pool_priority":
            found = named if pool in pools and priority in {"p0", "p1", "p2", "p3"} else None
        elif scope == "tenant":
            found = _text(Tenant.objects.filter(name=named).values_list("id", flat=True).first())
        elif public := as_uuid(named):
            found = _text(Run.objects.filter(public_id=public).values_list("id", flat=True).first())
        if found is None:
            self.add_error("key", f"There is no such {scope.replace('_', ' ')}.")
        elif in_force(Pause.objects.filter(scope=scope, key=found, source=OPERATOR)).exists():
            self.add_error("key", "It is paused already.")
        elif scope in ("priority", "pool_priority") and named.lower().endswith("p0") and not said.get("force"):
            self.add_error("force", "P0 is what people wait for right now: tick this to pause it all the same.")
        said["key"] = named.lower() if scope == "priority" else named
        return said


def in_force(pauses: "QuerySet[Pause]") -> "QuerySet[Pause]":
    """Return those of some pauses that have not ended."""
    return pauses.filter(Q(until=None) | Q(until__gt=Now()), resumed_at=None)


def _text(value: object) -> str | None:
    return None if value is None else str(value)


class PauseAdmin(Settable):
    """Pauses in force. To delete one is to resume, by the verb; the dispatcher sees either within a second."""

    may_add = may_delete = True
    form = PauseForm
    empty = "Nothing is paused."
    list_display = ("scope", "named", "reason", "author", "source", "ends", "began")

    def get_queryset(self, request: HttpRequest) -> "QuerySet[Pause]":
        """Leave out what has ended."""
        return in_force(super().get_queryset(request))

    def save_model(self, request: HttpRequest, obj: Pause, form: Any, change: bool) -> None:
        """Pause by the verb, over a connection of its own; the list shows the row that it made."""
        with staff.own_connection(scope_of(request).tenant) as connection:
            operate.pause_scope(
                connection,
                obj.scope,  # type: ignore[arg-type]  # the form has checked it
                obj.key,
                tenant=scope_of(request).tenant,
                actor=person_of(request),
                reason=obj.reason,
                until=obj.until,
                force=form.cleaned_data["force"],
            )
        made = in_force(Pause.objects.filter(scope=obj.scope, author=person_of(request))).latest("created_at")
        obj.pk, obj.key = made.pk, made.key

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Confirm (GET) or resume (POST), with a reason. The row stays, as what was paused once."""
        pause = self.get_object(request, object_id)
        if pause is None:
            raise Http404("there is no such pause")
        if not self.has_delete_permission(request, pause):
            raise PermissionDenied
        return reasoned.confirm(
            self,
            request,
            f"resume pause {pause.pk}",
            verb="Resume",
            title=f"Resume {pause.scope.replace('_', ' ')} {self.named(pause)}?",
            what=f"Paused by {pause.author}: {pause.reason} What has waited begins again little by little, within "
            "20 seconds.",
            do=lambda why: self._resume(request, pause, why),
        )

    def _resume(self, request: HttpRequest, pause: Pause, reason: str) -> None:
        """Resume by the verb, so that the slots come back by the ramp."""
        try:
            with staff.own_connection(scope_of(request).tenant) as connection:
                done = operate.resume_scope(
                    connection,
                    pause.scope,  # type: ignore[arg-type]  # it is in force
                    self.named(pause),
                    tenant=scope_of(request).tenant,
                    actor=person_of(request),
                    reason=reason,
                )
        except HarnessError as error:
            messages.error(request, error.message)
            return
        LogEntry.objects.log_actions(
            int(request.user.pk or 0), [pause], CHANGE, f"Resumed: {reason}", single_object=True
        )
        messages.success(
            request,
            "Resumed." if done.outcome == "resumed" else "Your pause is lifted; another's remains, and holds it still.",
        )

    @admin.display(description="")
    def act(self, pause: Pause) -> SafeString:
        """Return a link to resume it."""
        return format_html('<a href="{}">Resume</a>', reverse("admin:store_pause_delete", args=(pause.pk,)))

    def get_list_display(self, request: HttpRequest) -> tuple[str, ...]:
        """Offer to resume, to who may."""
        return (*self.list_display, "act") if self.has_delete_permission(request) else self.list_display

    @admin.display(description="until (UTC)", ordering="until")
    def ends(self, pause: Pause) -> datetime | str:
        """Return when it ends by itself."""
        return pause.until or "it is resumed"

    @admin.display(description="since (UTC)", ordering="created_at")
    def began(self, pause: Pause) -> datetime:
        """Return since when."""
        return pause.created_at

    @admin.display(description="what")
    def named(self, pause: Pause) -> str:
        """Return what is paused, by name."""
        if pause.scope == "tenant" and pause.key.isdigit():
            return Tenant.objects.filter(id=pause.key).values_list("name", flat=True).first() or pause.key
        if pause.scope == "run" and pause.key.isdigit():
            return str(Run.objects.filter(id=pause.key).values_list("public_id", flat=True).first() or pause.key)
        return pause.key
