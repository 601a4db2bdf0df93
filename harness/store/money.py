"""What tenants may spend and have spent. Attempts are the truth; the leader adds them up, nobody else does.

Sums of what is older than the mark stand in usage_day; the rest, some minutes of attempts, is added up on the spot.
"""

import math
from dataclasses import dataclass
from datetime import date

from django.db.models.functions import Now

from harness.policy import money
from harness.policy.errors import NotFound
from harness.policy.money import Budget, Spent, Standing
from harness.store import models, sql
from harness.store.database import Connection

STEP_S = 300.0  # the mark moves on in such steps
MARGIN_S = 120.0  # behind now: an attempt's end is written down and committed within a statement's time limit
LAST_TENANT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class DayUsed:
    """What a tenant used in one UTC day. `usd` leaves out `unpriced_tokens`: those of models without a price."""

    day: date
    attempts: int
    tokens: int
    unpriced_tokens: int
    usd: float


@dataclass(frozen=True, slots=True)
class Used:
    """What a task has used."""

    tokens: int
    unpriced_tokens: int
    usd: float


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetView:
    """A budget as lists show it, with where its tenant stands."""

    tenant: str
    budget: Budget
    spent: Spent
    standing: Standing
    author: str


def count(connection: Connection, *, epoch: int, unpriced_usd: float) -> int:
    """Count what was spent, as the leader. Returns how many budgets were counted anew."""
    connection.execute(sql.load("money/roll_up"), {"step_s": STEP_S, "margin_s": MARGIN_S, "epoch": epoch})
    row = connection.execute(sql.load("money/count_spent"), {"epoch": epoch, "unpriced_usd": unpriced_usd}).fetchone()
    return row[0] if row else 0


def standing(connection: Connection, tenant: int) -> Standing:
    """Return where a tenant stands, as of the leader's last count (a second ago)."""
    for _, budget, spent in _budgets(connection, tenant, tenant):
        return money.stand(budget, spent)
    return money.OPEN


def of_tenant(connection: Connection, tenant: int) -> tuple[Budget, Spent] | None:
    """Return a tenant's budget and what was spent of it, as of the leader's last count; None: it has none."""
    for _, budget, spent in _budgets(connection, tenant, tenant):
        return budget, spent
    return None


def beyond(connection: Connection) -> dict[int, Standing]:
    """Return the tenants whose work that costs must wait."""
    found = {tenant: money.stand(budget, spent) for tenant, budget, spent in _budgets(connection, 0, LAST_TENANT)}
    return {tenant: one for tenant, one in found.items() if one.line == "hard"}


def usage(connection: Connection, tenant: int, *, first: date, last: date) -> list[DayUsed]:
    """Return what a tenant has used on the days from `first` to `last`, newest first; days without use are left out."""
    cursor = connection.execute(sql.load("money/usage"), {"tenant": tenant, "first": first, "last": last})
    return [DayUsed(*row) for row in cursor]


def of_task(connection: Connection, task: int) -> Used:
    """Return what a task's ended attempts have used."""
    row = connection.execute(sql.load("money/task_spent"), {"task": task}).fetchone()
    return Used(*row) if row else Used(0, 0, 0.0)


def set_budget(tenant_name: str, budget: Budget, *, author: str) -> None:
    """Give a tenant a budget, or another one; what it has spent stays. Raises: NotFound."""
    values = {
        "day_usd": budget.day_usd,
        "month_usd": budget.month_usd,
        "soft_ratio": budget.soft_ratio,
        "author": author,
        "updated_at": Now(),
    }
    models.Budget.objects.update_or_create(tenant=_tenant(tenant_name), defaults=values)


def clear_budget(tenant_name: str) -> bool:
    """Take a tenant's budget away: it may spend without limit. False: it had none. Raises: NotFound."""
    return bool(models.Budget.objects.filter(tenant=_tenant(tenant_name)).delete()[0])


def budgets(connection: Connection, tenant_name: str | None = None) -> list[BudgetView]:
    """Return all budgets, or one tenant's, by name. Raises: NotFound."""
    only = None if tenant_name is None else _tenant(tenant_name).pk
    names = {row.tenant_id: (row.tenant.name, row.author) for row in models.Budget.objects.select_related("tenant")}
    found = [
        BudgetView(
            tenant=names[tenant][0],
            budget=budget,
            spent=spent,
            standing=money.stand(budget, spent),
            author=names[tenant][1],
        )
        for tenant, budget, spent in _budgets(connection, 0, LAST_TENANT)
        if tenant in names and only in (None, tenant)
    ]
    return sorted(found, key=lambda one: one.tenant)


def _budgets(connection: Connection, first: int, last: int) -> list[tuple[int, Budget, Spent]]:
    cursor = connection.execute(sql.load("money/budgets"), {"first": first, "last": last})
    return [
        (
            row[0],
            Budget(day_usd=row[1], month_usd=row[2], soft_ratio=row[3]),
            Spent(day_usd=row[4], month_usd=row[5], day_left_s=_left(row[6]), month_left_s=_left(row[7])),
        )
        for row in cursor
    ]


def _left(seconds: float) -> float:
    return max(0.0, seconds) if math.isfinite(seconds) else 0.0


def _tenant(name: str) -> models.Tenant:
    tenant = models.Tenant.objects.filter(name=name).first()
    if tenant is None:
        raise NotFound(f"there is no tenant {name!r}; `manage.py tenant list` shows them", field="tenant")
    return tenant
