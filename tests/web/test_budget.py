"""Money over HTTP: a budget's soft and hard line, what a task cost, usage by day; and the operators' command."""

import io
import json
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command

from harness.engine import reasons
from harness.store import money
from tests.stage import Stage
from tests.web.conftest import Api, assert_problem

CHAT = {"messages": [{"role": "user", "content": "Hello"}]}


class Books:
    """The leader's and the worker's side of one tenant's money."""

    def __init__(self, api: Api, stage: Stage) -> None:
        self.api, self.stage = api, stage
        self.tenant = int(stage.one("SELECT id FROM tenant WHERE name = %s", api.tenant))

    def spend(self, usd: float | None, *, tokens: int = 1000, task_id: str | None = None) -> None:
        task = self.stage.one("SELECT id FROM task WHERE public_id = %s", task_id) if task_id else 0
        self.stage.connection.execute(
            "INSERT INTO attempt (task_id, tenant_id, release_no, ended, verdict, tokens, usd) "
            "SELECT %s, %s, count(*) + 1, clock_timestamp(), 'succeed', %s, %s FROM attempt",
            (task, self.tenant, tokens, usd),
        )
        self.count()

    def why(self, task_id: str) -> Any:
        """What a task answers after the leader has looked at the reasons."""
        assert self.stage.epoch is not None
        noted = reasons.Noted()
        for _ in range(2):
            reasons.pass_over(self.stage.connection, settings.HARNESS_TOPOLOGY, noted, epoch=self.stage.epoch)
        return self.api.http.get(f"/api/v1/tasks/{task_id}/why").json()

    def count(self) -> None:
        assert self.stage.epoch is not None
        money.count(self.stage.connection, epoch=self.stage.epoch, unpriced_usd=10.0)


@pytest.fixture
def books(api: Api, stage_beside: Stage) -> Books:
    stage_beside.hold_lead()
    return Books(api, stage_beside)


def manage(*arguments: str) -> str:
    out = io.StringIO()
    call_command("budget", *arguments, stdout=out)
    return out.getvalue()


def test_the_soft_line_warns_and_the_hard_line_refuses_until_it_is_raised(api: Api, books: Books) -> None:
    manage("set", "alpha", "--month", "100", "--day", "10", "--soft", "0.5")
    books.count()
    books.stage.add_session()
    first = api.submit("llm.chat", CHAT)
    assert first.status_code == 202 and first.json()["budget"] is None and "Harness-Budget" not in first.headers
    books.spend(6.0)
    warned = api.submit("llm.chat", CHAT)
    assert warned.status_code == 202
    told = warned.json()["budget"]
    assert (told["line"], told["period"], told["spent_usd"], told["limit_usd"]) == ("soft", "day", 6.0, 10.0)
    assert warned.headers["Harness-Budget"].startswith("soft; period=day; spent_usd=6.0; limit_usd=10.0; left_s=")
    assert api.submit("noop").json()["budget"] is None  # it costs nothing
    books.spend(4.0)
    answer = api.submit("llm.chat", CHAT, key="once")
    problem = assert_problem(answer, 429, "budget_exceeded", "kind")
    assert (problem["period"], problem["spent_usd"], problem["limit_usd"]) == ("day", 10.0, 10.0)
    midnight = (datetime.now(UTC) + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    left_s = (midnight - datetime.now(UTC)).total_seconds()
    assert abs(int(answer.headers["Retry-After"]) - left_s) < 5
    assert api.submit("noop").status_code == 202
    nodes = [{"kind": "noop", "input": {}}, {"kind": "llm.chat", "input": CHAT}]
    assert_problem(api.http.post("/api/v1/runs", json={"nodes": nodes}), 429, "budget_exceeded", "kind")
    waiting = books.why(first.json()["task_id"])
    assert (waiting["state"], waiting["reason"]["code"], waiting["reason"]["subject"]) == ("queued", "budget", "day")
    assert waiting["reason"]["words"] == "The day's budget of $10.00 is spent."
    assert books.stage.tick() == [] or all(m.kind == "noop" for m in books.stage.messages)
    manage("set", "alpha", "--day", "0.0045")
    assert "budget of $0.0045 are spent" in api.submit("llm.chat", CHAT).json()["detail"]
    assert books.why(first.json()["task_id"])["reason"]["words"] == "The day's budget of $0.0045 is spent."
    manage("set", "alpha", "--day", "1000")
    assert books.why(first.json()["task_id"])["reason"]["code"] != "budget"
    assert api.submit("llm.chat", CHAT, key="once").status_code == 202  # the refusal kept no key


def test_a_submission_made_before_is_still_answered_beyond_the_line(api: Api, books: Books) -> None:
    made = api.submit("llm.chat", CHAT, key="k").json()
    manage("set", "alpha", "--day", "0")
    books.count()
    assert_problem(api.submit("llm.chat", CHAT), 429, "budget_exceeded", "kind")
    again = api.submit("llm.chat", CHAT, key="k")
    assert again.status_code == 200 and again.json()["task_id"] == made["task_id"]


def test_a_task_shows_what_its_attempts_used_and_an_unknown_price_as_null(api: Api, books: Books) -> None:
    task_id = api.submit("llm.chat", CHAT).json()["task_id"]
    assert {name: api.http.get(f"/api/v1/tasks/{task_id}").json()[name] for name in ("tokens", "usd", "warning")} == {
        "tokens": 0,
        "usd": 0.0,
        "warning": None,
    }
    books.spend(0.25, tokens=100, task_id=task_id)
    books.spend(0.5, tokens=200, task_id=task_id)
    task = api.http.get(f"/api/v1/tasks/{task_id}").json()
    assert (task["tokens"], task["usd"], task["warning"]) == (300, 0.75, None)
    books.spend(None, tokens=50, task_id=task_id)
    task = api.http.get(f"/api/v1/tasks/{task_id}").json()
    assert (task["tokens"], task["usd"]) == (350, None) and "without a price" in task["warning"]


def test_usage_is_told_by_day_for_the_own_tenant_only(api: Api, books: Books, make_api: Any) -> None:
    books.spend(0.25, tokens=100)
    books.spend(None, tokens=7)
    today = datetime.now(UTC).date()
    since, until = today - timedelta(days=1), today + timedelta(days=1)
    where = {"from": str(since), "to": str(until)}
    usage = api.http.get("/api/v1/usage", params=where).json()
    assert sum(day["tokens"] for day in usage["days"]) == usage["tokens"] == 107
    assert sum(day["usd"] for day in usage["days"]) == 0.25 and usage["usd"] is None and usage["warning"]
    assert sum(day["unpriced_tokens"] for day in usage["days"]) == 7
    assert (usage["from"], usage["to"], usage["budget"]) == (str(since), str(until), None)
    assert api.http.get("/api/v1/usage").json()["from"] == str(today.replace(day=1))
    other = make_api("beta").http.get("/api/v1/usage", params=where).json()
    assert (other["days"], other["tokens"], other["usd"]) == ([], 0, 0.0)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"from": "2026-02-30"}, "from"),
        ({"to": "soon"}, "to"),
        ({"from": "2026-02-02", "to": "2026-02-01"}, "from"),
        ({"from": "2020-01-01", "to": "2026-01-01"}, "from"),
        ({"since": "2026-01-01"}, "since"),
        ({"to": "9999-12-31", "from": "9999-12-31", "x": "1"}, "x"),
    ],
)
def test_a_wrong_range_is_named(api: Api, query: dict[str, str], field: str) -> None:
    assert_problem(api.http.get("/api/v1/usage", params=query), 422, "invalid", field)


def test_the_last_days_of_the_calendar_do_no_harm(api: Api) -> None:
    assert api.http.get("/api/v1/usage", params={"from": "9999-12-31", "to": "9999-12-31"}).status_code == 200
    assert api.http.get("/api/v1/usage", params={"from": "0001-01-01", "to": "0001-01-02"}).status_code == 200


def test_a_model_that_nobody_configured_is_refused_at_the_door(api: Api) -> None:
    problem = assert_problem(api.submit("llm.chat", CHAT | {"model": "gpt-x"}), 422, "invalid", "input.model")
    assert "emulator-1" in problem["detail"]


def test_operators_set_list_and_clear_budgets(api: Api, books: Books) -> None:
    assert "holds within" in manage("set", "alpha", "--month", "100", "--soft", "0.8")
    books.spend(85.5)
    (listed,) = json.loads(manage("list", "--json"))
    assert listed["tenant"] == "alpha" and listed["standing"]["line"] == "soft" and listed["author"]
    assert "$85.50 of $100.00" in manage("list", "alpha")
    assert "without limit" in manage("clear", "alpha") and "had no budget" in manage("clear", "alpha")
    assert "no budgets" in manage("list")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("set", "alpha"), "give a budget"),
        (("set", "alpha", "--day", "-1"), "day: must be"),
        (("set", "alpha", "--day", "nan"), "day: must be"),
        (("set", "alpha", "--month", "5", "--soft", "2"), "soft: must be"),
        (("set", "nobody", "--month", "5"), "no tenant 'nobody'"),
        (("list", "nobody"), "no tenant 'nobody'"),
    ],
)
def test_a_wrong_budget_names_the_option(api: Api, arguments: tuple[str, ...], told: str) -> None:
    with pytest.raises(CommandError, match=told):
        manage(*arguments)


def test_output_and_stream_stand_among_a_tasks_links(api: Api) -> None:
    links = api.submit("noop").json()["links"]
    assert links["stream"].endswith("/stream") and links["output"].endswith("/output")
    assert str(uuid.UUID(links["output"].split("/")[-2])) in links["self"]
