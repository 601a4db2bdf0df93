"""Filters of lists: closed choices that are known without looking at the rows."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

from django.conf import settings
from django.contrib.admin import SimpleListFilter
from django.db.models import QuerySet
from django.http import HttpRequest

from harness.kinds import registry
from harness.policy.lifecycle import TABLE, Event, State
from harness.store.models import Tenant
from harness.web.admin.scope import scope_of

TENANTS_SHOWN = 100  # beyond, the search finds them


class _Column(SimpleListFilter, ABC):
    column: ClassVar[str]

    @abstractmethod
    def choices_of(self, request: HttpRequest) -> Iterable[tuple[Any, str]]:
        """Return the choices, as (value, words)."""

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[Any, str]]:
        return list(self.choices_of(request))

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        known = {str(choice) for choice, _ in self.lookup_choices}
        if value is None or str(value) not in known:
            return queryset
        return queryset.filter(**{self.column: value})


class ByState(_Column):
    """By state."""

    title, parameter_name, column = "state", "state", "state"

    def choices_of(self, request: HttpRequest) -> Iterable[tuple[Any, str]]:
        """Every state."""
        return ((state.value, state.value) for state in State)


class ByPriority(_Column):
    """By priority."""

    title, parameter_name, column = "priority", "priority", "priority"

    def choices_of(self, request: HttpRequest) -> Iterable[tuple[Any, str]]:
        """P0 to P3."""
        return ((number, f"P{number}") for number in range(4))


class ByPool(_Column):
    """By pool."""

    title, parameter_name, column = "pool", "pool", "pool"

    def choices_of(self, request: HttpRequest) -> Iterable[tuple[Any, str]]:
        """Every pool of the topology."""
        return ((name, name) for name in sorted(settings.HARNESS_TOPOLOGY.pools))


class ByKind(_Column):
    """By kind."""

    title, parameter_name, column = "kind", "kind", "kind"

    def choices_of(self, request: HttpRequest) -> Iterable[tuple[Any, str]]:
        """Every kind that this process knows."""
        return ((name, name) for name in sorted({kind.name for kind in registry.all_kinds()}))


class ByEvent(_Column):
    """By trace event."""

    title, parameter_name, column = "event", "event", "event"

    def choices_of(self, request: HttpRequest) -> Iterable[tuple[Any, str]]:
        """Every event of the lifecycle."""
        return ((event.value, event.value) for event in Event)


class ByVerdict(ByEvent):
    """By the event that ended an attempt."""

    title, parameter_name, column = "verdict", "verdict", "verdict"

    def choices_of(self, request: HttpRequest) -> Iterable[tuple[Any, str]]:
        """Every event that leads out of `running`."""
        return ((event.value, event.value) for event, row in TABLE.items() if State.RUNNING in row.sources)


class ByTenant(_Column):
    """By tenant; not offered to who sees only one."""

    title, parameter_name, column = "tenant", "tenant", "tenant_id"

    def choices_of(self, request: HttpRequest) -> Iterable[tuple[Any, str]]:
        """The tenants, by name."""
        if not scope_of(request).everything:
            return ()
        return Tenant.objects.order_by("name").values_list("id", "name")[:TENANTS_SHOWN]


class _Yes(SimpleListFilter):
    yes: ClassVar[str]
    no: ClassVar[str]
    empty: ClassVar[str]  # the column that is NULL where the answer is no

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[Any, str]]:
        return [("yes", self.yes), ("no", self.no)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() not in {"yes", "no"}:
            return queryset
        return queryset.filter(**{f"{self.empty}__isnull": self.value() == "no"})


class Revoked(_Yes):
    """Whether a key is revoked."""

    title, parameter_name, yes, no, empty = "validity", "revoked", "revoked", "valid", "revoked_at"


class Ended(_Yes):
    """Whether a session has ended."""

    title, parameter_name, yes, no, empty = "life", "ended", "ended", "alive", "ended_at"


class Claimed(_Yes):
    """Whether a lease is claimed."""

    title, parameter_name, yes, no, empty = "claimed", "claimed", "claimed", "not yet", "claimed_at"
