"""Logins of the admin: their groups, the tenant that one is tied to, and forms that are sent once.

What a person may see follows from three things, the strictest wins: a tie to a tenant, the permission to see every
tenant, and the permissions of the groups. Without a tie and without that permission there is nothing to see.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from django.apps import apps
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, Group, Permission, User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from harness.policy.errors import Conflict, Invalid, NotFound
from harness.store.models import Person, SentForm, Tenant

SENT_FORMS_KEPT = timedelta(days=2)  # longer than a form's signature is good for (harness.web.admin.once)

# Models whose rows say who is who: for superusers.
_PRIVATE = frozenset({"person", "sentform", "idempotency"})
_SETTABLE = (
    "add_tenant",
    "change_tenant",
    "add_quota",
    "change_quota",
    "delete_quota",
    "add_apikey",
    "change_apikey",
    "add_pause",
    "change_pause",
    "delete_pause",
    "add_override",
    "delete_override",
)

# Beside the right to look, which every group has.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "viewer": ("see_every_tenant",),
    "operator": ("see_every_tenant", "see_tracebacks", "operate", *_SETTABLE),
    "tenant admin": ("operate", "add_apikey", "change_apikey"),
}


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose rows a person sees: every tenant's, one tenant's, or (neither) nobody's."""

    everything: bool = False
    tenant: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PersonView:
    """A login as lists show it."""

    name: str
    groups: tuple[str, ...]
    tenant: str | None
    superuser: bool
    active: bool


def scope_of(user: AbstractBaseUser | AnonymousUser) -> Scope:
    """Return whose rows a login sees."""
    if not isinstance(user, User) or not user.is_active:
        return Scope()
    tied = Person.objects.filter(user=user).values_list("tenant_id", flat=True).first()
    if tied is not None:
        return Scope(tenant=tied)
    return Scope(everything=user.has_perm("store.see_every_tenant"))


def tenant_name(tenant: int) -> str:
    """Return what a tenant is called; nothing when it is gone."""
    return Tenant.objects.filter(id=tenant).values_list("name", flat=True).first() or ""


def setup() -> list[str]:
    """Make the groups, or bring their permissions up to date. Returns their names."""
    models = [model._meta.model_name or "" for model in apps.get_app_config("store").get_models()]
    looks = [f"view_{name}" for name in models if name not in _PRIVATE]
    with transaction.atomic():
        for name, codenames in GROUPS.items():
            group, _ = Group.objects.get_or_create(name=name)
            wanted = Permission.objects.filter(content_type__app_label="store", codename__in=[*looks, *codenames])
            group.permissions.set(wanted)
    return list(GROUPS)


def add(name: str, password: str, *, group: str, tenant: str | None = None) -> None:
    """Make a login in a group. Raises: Invalid naming the field; NotFound (tenant); Conflict when the name is taken."""
    if group not in GROUPS:
        raise Invalid(f"group: {group!r}; choose from {', '.join(GROUPS)}", field="group")
    if (tenant is None) is (group == "tenant admin"):
        raise Invalid("tenant: a tenant admin needs one, and nobody else has one", field="tenant")
    tied = None
    if tenant is not None:
        tied = Tenant.objects.filter(name=tenant).first()
        if tied is None:
            raise NotFound(f"there is no tenant {tenant!r}; `manage.py tenant list` shows them", field="tenant")
    setup()
    user = User(username=name, is_staff=True)
    try:
        User.username_validator(name)
        validate_password(password, user)
    except ValidationError as error:
        raise Invalid(" ".join(error.messages), field="password") from None
    user.set_password(password)
    try:
        with transaction.atomic():
            user.save()
            user.groups.set(Group.objects.filter(name=group))
            if tied is not None:
                Person.objects.create(user=user, tenant=tied)
    except IntegrityError:
        raise Conflict(f"name: there is a login {name!r} already", field="name") from None


def people() -> list[PersonView]:
    """Return all logins of the admin, by name."""
    tied = dict(Person.objects.values_list("user_id", "tenant_id"))
    names = dict(Tenant.objects.filter(id__in=tied.values()).values_list("id", "name"))
    return [
        PersonView(
            name=user.username,
            groups=tuple(sorted(group.name for group in user.groups.all())),
            tenant=names.get(tied[user.id], "(deleted)") if user.id in tied else None,
            superuser=user.is_superuser,
            active=user.is_active,
        )
        for user in User.objects.filter(is_staff=True).prefetch_related("groups").order_by("username")
    ]


def take_form(token: uuid.UUID) -> bool:
    """Take a form's token; False when it was taken before. Call it outside a transaction, or it counts only with it."""
    SentForm.objects.filter(sent_at__lt=Now() - SENT_FORMS_KEPT).delete()
    try:
        with transaction.atomic():
            SentForm.objects.create(token=token)
    except IntegrityError:
        return False
    return True


def give_back_form(token: uuid.UUID) -> None:
    """Let a form's token be taken again: what it was taken for has not happened."""
    SentForm.objects.filter(token=token).delete()
