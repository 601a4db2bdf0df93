"""Money in answers: what a task has used, where a tenant's budget stands, and the header that warns."""

from django.http import HttpResponse
from pydantic import BaseModel, Field

from harness.policy.money import Standing
from harness.store import money
from harness.store.database import Connection
from harness.store.queries import TaskView

HEADER = "Harness-Budget"
UNPRICED = "{tokens:,} of the tokens are of models without a price in config/models.toml: what they cost is not known"


class BudgetOut(BaseModel):
    """Where the tenant's budget stands."""

    line: str = Field(description="`soft`: near its end; `hard`: spent, work that costs is not started")
    period: str = Field(description="`day` or `month`, in UTC")
    spent_usd: float
    limit_usd: float
    left_s: float = Field(description="seconds until the period ends")
    message: str


class UsedOut(BaseModel):
    """What a task's ended attempts have used."""

    tokens: int
    usd: float | None = Field(description="null: not known, see `warning`")
    warning: str | None = None


def budget_out(standing: Standing) -> BudgetOut | None:
    """Return a standing worth telling, if it is."""
    if standing.line == "open" or standing.period is None:
        return None
    return BudgetOut(
        line=standing.line,
        period=standing.period,
        spent_usd=round(standing.spent_usd, 6),
        limit_usd=standing.limit_usd,
        left_s=round(standing.left_s, 1),
        message=standing.message,
    )


def warned(response: HttpResponse, standing: Standing) -> HttpResponse:
    """Return the answer with the header that tells of a budget near its end."""
    told = budget_out(standing)
    if told is not None:
        response[HEADER] = (
            f"{told.line}; period={told.period}; spent_usd={told.spent_usd}; limit_usd={told.limit_usd}; "
            f"left_s={told.left_s:.0f}"
        )
    return response


def used_out(tokens: int, unpriced_tokens: int, usd: float) -> UsedOut:
    """Return what was used. A cost that is known in part only is not told as if it were the whole."""
    return UsedOut(
        tokens=tokens,
        usd=None if unpriced_tokens else round(usd, 9),
        warning=UNPRICED.format(tokens=unpriced_tokens) if unpriced_tokens else None,
    )


def of_task(connection: Connection, task: TaskView) -> UsedOut:
    """Return what a task has used."""
    used = money.of_task(connection, task.id)
    return used_out(used.tokens, used.unpriced_tokens, used.usd)
