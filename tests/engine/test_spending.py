"""What attempts cost, who adds it up, and what a spent budget holds: on the real database, without real time."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from typing import Any

import psycopg
import pytest
from pydantic import BaseModel, ConfigDict

from harness.engine import execute, submit
from harness.engine.submit import Door, TaskRequest
from harness.kinds import Context, Permanent, Transient, kind, registry
from harness.policy.admission import TenantFacts
from harness.policy.errors import Invalid
from harness.policy.money import BudgetExceeded
from harness.store import money, queries, sql, transitions
from harness.store.database import Connection
from tests.stage import Stage

MODEL = "emulator-1"  # 0.50 and 1.50 USD a million tokens
UNPRICED = "nobody-told"


class Bill(BaseModel):
    """What to use, and how to end."""

    model_config = ConfigDict(extra="forbid")

    uses: list[tuple[str, int, int]] = []
    end: str = ""


@kind("test.spend", pool="llm", input=Bill, resources={"llm:default": 1}, costs=True, max_attempts=2)
def spend(ctx: Context, payload: Bill) -> None:
    """Use what it is told to use."""
    for model, tokens_in, tokens_out in payload.uses:
        ctx.spent(model, tokens_in, tokens_out)
    if payload.end == "transient":
        raise Transient("again, please")
    if payload.end == "permanent":
        raise Permanent("never")


@kind("test.free", pool="llm", input=Bill)
def free(ctx: Context, payload: Bill) -> None:
    """Cost nothing."""


KINDS = {name: registry._KINDS.pop(name) for name in ("test.spend", "test.free")}


@pytest.fixture(autouse=True)
def kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kinds of this file, known only to its tests."""
    for name, one in KINDS.items():
        monkeypatch.setitem(registry._KINDS, name, one)


def run(stage: Stage, *bills: Bill, tenant: int | None = None) -> list[int]:
    tasks = [
        stage.submit("test.spend", input=bill.model_dump_json(), tenant=tenant or stage.tenant)[0] for bill in bills
    ]
    session = stage.add_session()
    with stage.process(session) as process:
        stage.run_all(process)
    return tasks


def count(stage: Stage) -> int:
    assert stage.epoch is not None
    return money.count(stage.connection, epoch=stage.epoch, unpriced_usd=10.0)


@contextmanager
def as_web(stage: Stage, tenant: int) -> Iterator[Connection]:
    connection = stage.open("web")
    try:
        with queries.as_tenant(connection, tenant):
            yield connection
    finally:
        connection.close()


def give(stage: Stage, *, day: float | None = None, month: float | None = None, tenant: int | None = None) -> None:
    stage.connection.execute(
        "INSERT INTO budget (tenant_id, day_usd, month_usd) VALUES (%s, %s, %s) "
        "ON CONFLICT (tenant_id) DO UPDATE SET day_usd = excluded.day_usd, month_usd = excluded.month_usd",
        (tenant or stage.tenant, day, month),
    )


def attempt(stage: Stage, ended: str, tokens: int, usd: float | None, *, tenant: int | None = None) -> None:
    number = stage.one("SELECT coalesce(max(release_no), 0) + 1 FROM attempt")
    stage.connection.execute(
        "INSERT INTO attempt (task_id, tenant_id, release_no, ended, verdict, tokens, usd) "
        "VALUES (0, %s, %s, %s, 'succeed', %s, %s)",
        (tenant or stage.tenant, number, ended, tokens, usd),
    )


def facts(stage: Stage) -> TenantFacts:
    return TenantFacts(id=stage.tenant, name="acme", top_priority=0, backlog_quota=1000)


def ask(stage: Stage, *kinds: str) -> submit.Accepted:
    with_web = stage.open("web")
    try:
        requests = [TaskRequest(kind=name, input={}) for name in kinds]
        return submit.submit(Door(body_max_bytes=10_000), with_web, facts(stage), requests, actor="test")
    finally:
        with_web.close()


def test_what_an_attempt_used_stands_on_it_however_it_ended(stage: Stage) -> None:
    uses = [(MODEL, 1000, 200), (MODEL, 0, 100)]
    good, bad, again = run(
        stage,
        Bill(uses=uses),
        Bill(uses=uses, end="permanent"),
        Bill(uses=uses, end="transient"),
    )
    for task in (good, bad, again):
        used = money.of_task(stage.connection, task)
        assert (used.tokens, used.unpriced_tokens) == (1300, 0)
        assert used.usd == pytest.approx((1000 * 0.5 + 300 * 1.5) / 1e6)
    stage.connection.execute("UPDATE task SET not_before = clock_timestamp() WHERE id = %s", (again,))
    transitions.wake_due(stage.connection, actor="test")
    run(stage)
    assert stage.state(again) == "failed_terminal" and money.of_task(stage.connection, again).tokens == 2600


def test_an_unknown_price_is_null_and_the_budget_is_charged_the_configured_default(stage: Stage) -> None:
    give(stage, month=100.0)
    (task,) = run(stage, Bill(uses=[(UNPRICED, 600_000, 400_000)]))
    assert stage.one("SELECT usd FROM attempt WHERE task_id = %s", task) is None
    used = money.of_task(stage.connection, task)
    assert (used.tokens, used.unpriced_tokens, used.usd) == (1_000_000, 1_000_000, 0)
    assert count(stage) == 1
    assert stage.one("SELECT spent_month_usd FROM budget") == pytest.approx(10.0)


def test_tokens_below_nothing_are_refused(stage: Stage) -> None:
    (task,) = run(stage, Bill(uses=[(MODEL, -1, 0)]))
    assert "below 0" in stage.one("SELECT message FROM attempt WHERE task_id = %s", task)


def test_attempts_are_added_up_once_and_the_sum_is_the_same_before_and_after(stage: Stage) -> None:
    now = datetime.now(UTC)
    other = stage.add_tenant("other")
    # An hour ago and now; around midnight both may not be of today, so the month's first day is left out below.
    for ended in ("now() - interval '61 minutes'", "now() - interval '10 minutes'", "now() - interval '1 second'"):
        when = stage.one(f"SELECT ({ended})::text")
        attempt(stage, when, 100, 0.25)
        attempt(stage, when, 50, None)
        attempt(stage, when, 7, 4.0, tenant=other)
    since = date(now.year - 1, 1, 1)

    def sums() -> tuple[int, int, int, float]:
        with as_web(stage, stage.tenant) as connection:
            days = money.usage(connection, stage.tenant, first=since, last=date(now.year + 1, 1, 1))
        return (
            sum(day.attempts for day in days),
            sum(day.tokens for day in days),
            sum(day.unpriced_tokens for day in days),
            sum(day.usd for day in days),
        )

    assert sums() == (6, 450, 150, 0.75)
    stage.connection.execute("DELETE FROM usage_mark")
    count(stage)  # makes the mark
    assert stage.one("SELECT count(*) FROM usage_day") == 0 and sums() == (6, 450, 150, 0.75)
    count(stage)  # moves it
    assert stage.one("SELECT sum(attempts) FROM usage_day WHERE tenant_id = %s", stage.tenant) == 4
    assert sums() == (6, 450, 150, 0.75)
    count(stage)
    assert stage.one("SELECT sum(attempts) FROM usage_day WHERE tenant_id = %s", stage.tenant) == 4
    # Retention may take the attempts: what was rolled up stays.
    stage.connection.execute("DELETE FROM attempt WHERE ended < now() - interval '5 minutes'")
    assert sums() == (6, 450, 150, 0.75)
    stage.connection.execute("DELETE FROM usage_day")


def test_only_the_leader_adds_up(stage: Stage) -> None:
    give(stage, day=1.0)
    run(stage, Bill(uses=[(MODEL, 1000, 0)]))
    assert money.count(stage.connection, epoch=(stage.epoch or 0) - 1, unpriced_usd=10.0) == 0
    assert stage.one("SELECT counted_at FROM budget") is None
    assert count(stage) == 1


def test_what_was_spent_on_another_day_or_in_another_month_does_not_count_today(stage: Stage) -> None:
    give(stage, day=1.0, month=2.0)
    stage.connection.execute(
        "UPDATE budget SET spent_day_usd = 5, spent_month_usd = 5, counted_at = now() - interval '32 days'"
    )
    assert money.standing(stage.connection, stage.tenant).line == "open"
    stage.connection.execute("UPDATE budget SET counted_at = now()")
    found = money.standing(stage.connection, stage.tenant)
    assert (found.line, found.period) == ("hard", "month") and 0 < found.left_s <= 31 * 86_400


def test_a_spent_budget_refuses_what_costs_at_the_door_and_nothing_else(stage: Stage) -> None:
    give(stage, day=0.001)
    assert ask(stage, "test.spend").standing.line == "open"
    run(stage, Bill(uses=[(MODEL, 2000, 0)]))
    count(stage)
    with pytest.raises(BudgetExceeded) as refused:
        ask(stage, "test.free", "test.spend")
    retry_after_s = refused.value.facts["retry_after_s"]
    assert isinstance(retry_after_s, float) and 1 <= retry_after_s <= 86_400
    assert ask(stage, "test.free").standing.line == "open"
    give(stage, day=0.00115)  # 0.001 of it are spent: near its end
    warned = ask(stage, "test.spend").standing
    assert (warned.line, warned.period) == ("soft", "day")


def test_a_budget_reached_in_the_middle_of_a_run_holds_the_rest_until_it_is_raised(stage: Stage) -> None:
    give(stage, month=0.0025)
    one = Bill(uses=[(MODEL, 2000, 0)])  # 0.001 each
    other = stage.add_tenant("other")
    tasks = [stage.submit("test.spend", input=one.model_dump_json(), run=0)[0] for _ in range(6)]
    free_one = stage.submit("test.free")[0]
    session = stage.add_session({"llm": 1})
    with stage.process(session) as process:
        for _ in range(10):
            for message in list(stage.tick()):
                execute.run_lease(process, message.lease, message.token)
            count(stage)
        states = [stage.state(task) for task in tasks]
        assert states == ["succeeded"] * 3 + ["queued"] * 3  # the third crossed the line, and was counted
        assert stage.state(free_one) == "succeeded"  # what costs nothing goes on
        theirs = stage.submit("test.spend", input=one.model_dump_json(), tenant=other)[0]
        stage.run_all(process)
        assert stage.state(theirs) == "succeeded"  # and so do others
        assert set(stage.memory.beyond) == {stage.tenant}
        give(stage, month=1.0)
        stage.run_all(process)
    assert [stage.state(task) for task in tasks] == ["succeeded"] * 6
    assert stage.one("SELECT attempts_used FROM task WHERE id = %s", tasks[-1]) == 0


def test_web_sees_its_own_budget_and_usage_only_and_writes_neither(stage: Stage) -> None:
    other = stage.add_tenant("other")
    give(stage, day=1.0)
    with as_web(stage, other) as connection:
        assert money.standing(connection, stage.tenant).line == "open"
        assert connection.execute("SELECT count(*) FROM budget").fetchone() == (0,)
    with pytest.raises(psycopg.errors.InsufficientPrivilege), as_web(stage, stage.tenant) as connection:
        connection.execute("UPDATE budget SET day_usd = 1e6")


def test_what_costs_must_declare_what_it_pays_for() -> None:
    with pytest.raises(Invalid, match="declares the resource"):
        kind("test.no_resource", pool="llm", input=Bill, costs=True)(lambda ctx, payload: None)


@pytest.mark.parametrize("name", ["money/count_spent", "money/roll_up", "money/budgets", "money/usage"])
def test_no_statement_of_money_scans_the_attempts(stage: Stage, name: str) -> None:
    parameters: dict[str, Any] = {
        "epoch": stage.epoch,
        "unpriced_usd": 10.0,
        "step_s": 300.0,
        "margin_s": 120.0,
        "first": date(2026, 1, 1) if name == "money/usage" else 0,
        "last": date(2026, 12, 31) if name == "money/usage" else 2**31 - 1,
        "tenant": stage.tenant,
    }
    rows = stage.connection.execute(f"EXPLAIN {sql.load(name)}", parameters, prepare=False)
    text = "\n".join(row[0] for row in rows)
    assert "Seq Scan on attempt" not in text and "Seq Scan on usage_day" not in text, text
