"""What every list of the admin shares: rows of the person's tenants only, no counting, and no editing unless said."""

from typing import Any, ClassVar

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.db.models import ForeignKey, Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from unfold.admin import ModelAdmin

from harness.web.admin import once
from harness.web.admin.paging import Keyset
from harness.web.admin.scope import held, may_see


class Inspected(ModelAdmin):  # type: ignore[misc]  # Unfold has no types
    """Rows to look at. `tenant_path`: from the model to its tenant; None: only who sees every tenant sees any."""

    tenant_path: ClassVar[str | None] = "tenant_id"
    empty: ClassVar[str] = ""  # what the list says when there is nothing at all
    keys: ClassVar[tuple[str, ...]] = ("id",)
    keys_from: ClassVar[str | None] = None

    actions = None
    list_per_page = 50
    show_full_result_count = False
    sortable_by: ClassVar[tuple[str, ...]] = ()
    list_fullwidth = True
    change_list_template = "harness/admin/list.html"
    change_form_template = "harness/admin/form.html"
    add_form_template = "harness/admin/form.html"
    show_facets = None

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[Keyset]:
        """Page by key."""
        return Keyset

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the rows that the person may see: what pages, search, choices and actions start from."""
        return held(super().get_queryset(request), request, self.tenant_path)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whether the person may look."""
        return may_see(request, self.tenant_path) and super().has_view_permission(request, obj)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Nothing is added here."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nothing is changed here."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nothing is deleted here."""
        return False

    def formfield_for_foreignkey(self, db_field: "ForeignKey[Any, Any]", request: HttpRequest, **kwargs: Any) -> Any:
        """Offer only rows that the person may see."""
        other = self.admin_site._registry.get(db_field.remote_field.model)
        if other is not None and "queryset" not in kwargs:
            kwargs["queryset"] = other.get_queryset(request)
        return super().formfield_for_foreignkey(db_field, request, **kwargs)


class Listed(Inspected):
    """A plain list. A search asks for values of the columns `exact` as they are, each by its index."""

    exact: ClassVar[tuple[str, ...]] = ()

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Fetch the tenants' names beside the page."""
        rows = super().get_queryset(request)
        return rows.prefetch_related("tenant") if "tenant" in self.list_display else rows

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Find what a column holds exactly."""
        term = search_term.strip()
        if not term:
            return queryset, False
        matches = Q(pk__in=[])
        for name in self.exact:
            try:
                matches |= Q(**{name: self.opts.get_field(name).to_python(term)})
            except ValidationError:
                continue  # it is no value of that column
        request.harness_exact = True  # type: ignore[attr-defined]  # the list reads it
        return queryset.filter(matches), False


class Settable(Inspected):
    """Rows that people set. Each form acts once; what Django's permissions don't name stays refused."""

    may_add = False
    may_change = False
    may_delete = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Whether the person may add one."""
        return self.may_add and may_see(request, self.tenant_path) and self._may(request, "add")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whether the person may change one."""
        return self.may_change and may_see(request, self.tenant_path) and self._may(request, "change")

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whether the person may delete one."""
        return self.may_delete and may_see(request, self.tenant_path) and self._may(request, "delete")

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show or take a form, once."""
        purpose = f"{self.opts.label_lower} {object_id or 'new'}"
        if request.method == "POST":
            try:
                fresh = once.take(request, purpose)
            except once.Stale:
                messages.error(request, "The form was too old. Nothing was changed; fill it in again.")
                return HttpResponseRedirect(request.get_full_path())
            if not fresh:
                return self.again(request)
        context = {**(extra_context or {}), "once_field": once.FIELD, "once": once.token(request, purpose)}
        answer: HttpResponse = super().changeform_view(request, object_id, form_url, context)
        return answer

    def again(self, request: HttpRequest) -> HttpResponse:
        """Answer a form that was sent before."""
        messages.info(request, "That form was sent already; it acted once.")
        return HttpResponseRedirect(
            reverse(f"{self.admin_site.name}:{self.opts.app_label}_{self.opts.model_name}_changelist")
        )

    def _may(self, request: HttpRequest, verb: str) -> bool:
        return request.user.has_perm(f"{self.opts.app_label}.{verb}_{self.opts.model_name}")
