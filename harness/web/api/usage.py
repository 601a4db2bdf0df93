"""What a tenant has used, by day, and where its budget stands."""

from datetime import UTC, date, datetime, timedelta
from typing import Annotated

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router
from pydantic import BaseModel, Field

from harness.policy.errors import Invalid
from harness.store import money, queries
from harness.store.database import Connection
from harness.web.api import answers, costs
from harness.web.api.auth import READ, caller_of
from harness.web.api.costs import BudgetOut
from harness.web.api.schemas import Problem
from harness.web.service import service

router = Router(tags=["usage"])

DAYS_MOST = 400


class DayOut(BaseModel):
    """One UTC day. `usd` leaves out `unpriced_tokens`: those of models without a price."""

    day: date
    attempts: int
    tokens: int
    unpriced_tokens: int
    usd: float


class UsageOut(BaseModel):
    """What was used, by UTC day, newest first. Days without use are left out; an attempt counts on the day it ended."""

    first: date = Field(serialization_alias="from")
    last: date = Field(serialization_alias="to")
    days: list[DayOut]
    tokens: int
    usd: float | None = Field(description="null: not known, see `warning`")
    warning: str | None
    budget: BudgetOut | None = Field(description="null: no budget, or not near its end")


@router.get("", auth=READ, response={200: UsageOut, (401, 403, 422, 503): Problem}, summary="Read usage and cost")
async def read(
    request: HttpRequest,
    first: Annotated[date | None, Query(alias="from", description="without it: the first of this month")] = None,
    last: Annotated[date | None, Query(alias="to", description="included; without it: today (UTC)")] = None,
) -> HttpResponse:
    """Read what this tenant has used."""
    answers.only(request, "from", "to")
    caller = caller_of(request)
    serving = service()
    today = datetime.now(UTC).date()
    until = today if last is None else last
    since = until.replace(day=1) if first is None else first
    if since > until:
        raise Invalid(f"from: {since} is after `to`, {until}", field="from")
    if until - since >= timedelta(days=DAYS_MOST):
        raise Invalid(f"from: at most {DAYS_MOST} days at once", field="from")

    def look(connection: Connection) -> HttpResponse:
        with queries.as_tenant(connection, caller.tenant.id):
            days = money.usage(connection, caller.tenant.id, first=since, last=until)
            standing = money.standing(connection, caller.tenant.id)
        used = costs.used_out(
            sum(day.tokens for day in days), sum(day.unpriced_tokens for day in days), sum(day.usd for day in days)
        )
        return answers.answer(
            UsageOut(
                first=since,
                last=until,
                days=[
                    DayOut(
                        day=day.day,
                        attempts=day.attempts,
                        tokens=day.tokens,
                        unpriced_tokens=day.unpriced_tokens,
                        usd=round(day.usd, 9),
                    )
                    for day in days
                ],
                tokens=used.tokens,
                usd=used.usd,
                warning=used.warning,
                budget=costs.budget_out(standing),
            )
        )

    return await serving.on_thread(lambda: serving.with_connection(look))
