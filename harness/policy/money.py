"""Budgets: what a tenant may spend in a day and in a month (UTC), and what follows from what it has spent.

M1  Below the soft line: nothing. From the soft line on: answers say so. From the hard line on: work that costs is
    refused at the door, and what waits is not started until the period ends or the budget is raised.
M2  What runs when the line is reached ends and is counted: a budget is exceeded by what was in flight, at most.
M3  Of two periods the one that binds longer is named: a month's hard line before a day's.
M4  A budget of 0 stops at once; a period without a budget never does.
"""

import math
from dataclasses import dataclass
from typing import Literal

from harness.policy.errors import Invalid, Refused

Period = Literal["day", "month"]
Line = Literal["open", "soft", "hard"]

USD_MOST = 1e9
SOFT_RATIO = 0.8
RETRY_AFTER_LEAST_S = 1.0


class BudgetExceeded(Refused):
    """The tenant's budget is spent; there is room again when its period ends, or when it is raised."""

    code = "budget_exceeded"


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """What a tenant may spend, in USD (None: no limit). The soft line stands at `soft_ratio` of each."""

    day_usd: float | None
    month_usd: float | None
    soft_ratio: float = SOFT_RATIO


@dataclass(frozen=True, kw_only=True, slots=True)
class Spent:
    """What a tenant has spent in the current day and month, in USD, and the seconds that are left of them."""

    day_usd: float
    month_usd: float
    day_left_s: float
    month_left_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """Where a tenant stands. `period`: the one that decides (None: open); `left_s`: seconds until it ends."""

    line: Line
    period: Period | None = None
    spent_usd: float = 0.0
    limit_usd: float = 0.0
    left_s: float = 0.0

    @property
    def message(self) -> str:
        """For people: what was spent of what."""
        return f"{shown(self.spent_usd)} of the {self.period}'s budget of {shown(self.limit_usd)} are spent"


OPEN = Standing(line="open")


def shown(usd: float) -> str:
    """Return an amount for people: cents, and as much of a millionth as it has.

    >>> shown(1250), shown(0.004), shown(0.0000001)
    ('$1,250.00', '$0.004', '$0.00')
    """
    whole, _, rest = f"{usd:,.6f}".partition(".")
    return f"${whole}.{rest[:2]}{rest[2:].rstrip('0')}"


def budget(*, day_usd: float | None, month_usd: float | None, soft_ratio: float = SOFT_RATIO) -> Budget:
    """Return a checked budget. Raises: Invalid naming the field.

    >>> budget(day_usd=None, month_usd=None)
    Traceback (most recent call last):
    harness.policy.errors.Invalid: day: give a budget for the day, the month, or both
    """
    if day_usd is None and month_usd is None:
        raise Invalid("day: give a budget for the day, the month, or both", field="day")
    for field, value in (("day", day_usd), ("month", month_usd)):
        if value is not None and (not math.isfinite(value) or not 0 <= value <= USD_MOST):
            raise Invalid(f"{field}: must be an amount of USD from 0 to {USD_MOST:,.0f}, not {value}", field=field)
    if not 0 < soft_ratio <= 1:
        raise Invalid(f"soft: must be above 0 and at most 1 (a share of the budget), not {soft_ratio}", field="soft")
    return Budget(day_usd=day_usd, month_usd=month_usd, soft_ratio=soft_ratio)


def stand(budget: Budget, spent: Spent) -> Standing:
    """Return where a tenant stands (M1, M3, M4).

    >>> facts = {"day_left_s": 60.0, "month_left_s": 9000.0}
    >>> ten = Budget(day_usd=10.0, month_usd=100.0)
    >>> stand(ten, Spent(day_usd=7.9, month_usd=50.0, **facts)).line
    'open'
    >>> one = stand(ten, Spent(day_usd=8.0, month_usd=50.0, **facts)); one.line, one.period
    ('soft', 'day')
    >>> one = stand(ten, Spent(day_usd=10.0, month_usd=100.0, **facts)); one.line, one.period, one.left_s
    ('hard', 'month', 9000.0)
    """
    periods: tuple[tuple[Period, float | None, float, float], ...] = (
        ("month", budget.month_usd, spent.month_usd, spent.month_left_s),
        ("day", budget.day_usd, spent.day_usd, spent.day_left_s),
    )
    for line, share in (("hard", 1.0), ("soft", budget.soft_ratio)):
        for period, limit_usd, spent_usd, left_s in periods:
            if limit_usd is not None and spent_usd >= limit_usd * share:
                return Standing(
                    line="hard" if line == "hard" else "soft",
                    period=period,
                    spent_usd=spent_usd,
                    limit_usd=limit_usd,
                    left_s=left_s,
                )
    return OPEN


def refusal(standing: Standing) -> BudgetExceeded:
    """Return the refusal of work that costs, beyond the hard line."""
    return BudgetExceeded(
        f"{standing.message}: this kind of work costs, and is taken again when the {standing.period} ends (UTC) or the "
        "budget is raised",
        field="kind",
        period=standing.period,
        spent_usd=round(standing.spent_usd, 6),
        limit_usd=standing.limit_usd,
        retry_after_s=max(RETRY_AFTER_LEAST_S, standing.left_s),
    )
