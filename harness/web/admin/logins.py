"""Logins and groups: for superusers. A login is tied to a tenant here, or by `manage.py people add`."""

from typing import Any

from django import forms
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.http import HttpRequest
from unfold.admin import ModelAdmin, StackedInline
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm
from unfold.widgets import UnfoldAdminSelectWidget

from harness.store.models import Person, Tenant
from harness.web.admin.scope import may_see


class PersonForm(forms.ModelForm):  # type: ignore[type-arg]  # it isn't generic when it runs
    """The tie of a login to a tenant."""

    tenant = forms.ModelChoiceField(Tenant.objects.order_by("name"), widget=UnfoldAdminSelectWidget)

    class Meta:
        model = Person
        fields = ("tenant",)


class PersonInline(StackedInline):  # type: ignore[misc]  # Unfold has no types
    """The tie, on the login's page."""

    model = Person
    form = PersonForm
    can_delete = True
    verbose_name_plural = "Tenant (a login with one sees and acts on it alone)"
    extra = 0


class _ForSuperusers:
    tenant_path = None

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return _may(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return _may(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return _may(request)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return _may(request)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return _may(request)


def _may(request: HttpRequest) -> bool:
    return bool(getattr(request.user, "is_superuser", False)) and may_see(request, None)


class LoginAdmin(_ForSuperusers, DjangoUserAdmin, ModelAdmin):  # type: ignore[misc,type-arg]  # Unfold has no types
    """Logins."""

    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    inlines = (PersonInline,)
    list_display = ("username", "is_active", "is_staff", "is_superuser", "last_login")
    list_filter = ("is_active", "is_superuser", "groups")
    fieldsets = (
        (None, {"fields": ("username", "password")}),
        ("Rights", {"fields": ("is_active", "is_staff", "is_superuser", "groups")}),
        ("Dates", {"fields": ("last_login", "date_joined")}),
    )


class GroupAdmin(_ForSuperusers, DjangoGroupAdmin, ModelAdmin):  # type: ignore[misc]  # Unfold has no types
    """Groups."""
