"""Who owns work: the tenants' caps and weights and the runs' caps, as they stand now. Both may change between ticks.

One `Owners` serves all pools. A tenant that nobody has told of has what a new one has.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TenantFacts:
    """A tenant: `cap`, members in flight over all pools; `weight`, its share of a pool beside others (> 0).

    `degrade`: its work may be done in cheaper forms under pressure.
    """

    cap: int = 1000
    weight: float = 1.0
    degrade: bool = True


NEW = TenantFacts()


@dataclass(slots=True)
class Owners:
    """Tenants and runs by number. `version` tells who has added up weights that one of them changed."""

    tenants: dict[int, TenantFacts] = field(default_factory=dict)
    runs: dict[int, int | None] = field(default_factory=dict)
    version: int = 0

    def set_tenant(self, tenant: int, *, cap: int = NEW.cap, weight: float = NEW.weight, degrade: bool = True) -> None:
        """Note a tenant as it is now."""
        facts = TenantFacts(cap, weight, degrade)
        if self.tenants.get(tenant, NEW) != facts:
            self.tenants[tenant] = facts
            self.version += 1

    def set_run(self, run: int, cap: int | None) -> None:
        """Note a run's cap: its members in flight over all pools; None: no cap."""
        self.runs[run] = cap

    def cap(self, tenant: int) -> int:
        """Return how many members of a tenant may be in flight."""
        return self.tenants.get(tenant, NEW).cap

    def weight(self, tenant: int) -> float:
        """Return a tenant's weight."""
        return self.tenants.get(tenant, NEW).weight

    def degrades(self, tenant: int) -> bool:
        """Return whether a tenant's work may be done in cheaper forms."""
        return self.tenants.get(tenant, NEW).degrade
