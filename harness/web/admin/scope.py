"""Whose rows a request may see: asked once a request, used by every list, page, search and choice."""

from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest

from harness.store.people import Scope
from harness.store.people import scope_of as scope_of_user


def scope_of(request: HttpRequest) -> Scope:
    """Return whose rows the person behind a request sees."""
    known: Scope | None = getattr(request, "harness_scope", None)
    if known is None:
        known = scope_of_user(request.user)
        request.harness_scope = known  # type: ignore[attr-defined]  # kept on the request, as Django's own do
    return known


def held(queryset: QuerySet[Any], request: HttpRequest, path: str | None) -> QuerySet[Any]:
    """Return the rows of a queryset that the person may see. `path`: from the model to its tenant, if it has one."""
    scope = scope_of(request)
    if scope.everything:
        return queryset
    if scope.tenant is None or path is None:
        return queryset.none()
    return queryset.filter(**{path: scope.tenant})


def may_see(request: HttpRequest, path: str | None) -> bool:
    """Whether anything of a model may be seen at all."""
    scope = scope_of(request)
    return scope.everything or (scope.tenant is not None and path is not None)


def person_of(request: HttpRequest) -> str:
    """Return how a person is named in the trace."""
    return f"staff:{request.user.get_username()}"
