"""What the door says of load: accepted with an expected start, deferred with a reason, refused until when."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from django.conf import settings

from harness.engine.doorkeeper import Doorkeeper
from harness.kinds import registry
from harness.policy.pressure import Level
from tests.engine.test_pressure import set_level
from tests.stage import Stage
from tests.web.conftest import Api, assert_problem

KIND = "noop.single"
SLOTS = 4


@pytest.fixture
def line(api: Api, stage_beside: Stage) -> "Line":
    return Line(api, stage_beside)


class Line:
    """The api's tenant in front of four slots, and whoever keeps what doors go by."""

    def __init__(self, api: Api, stage: Stage) -> None:
        self.stage = stage
        self.tenant = int(stage.one("SELECT id FROM tenant WHERE name = %s", api.tenant))
        found = registry.find(KIND)
        assert found is not None
        session = stage.add_session({found.pool: SLOTS})
        stage.connection.execute(
            "UPDATE worker_session SET beat_at = clock_timestamp() + interval '1 hour' WHERE uuid = %s", (session,)
        )

    def is_so(self, waiting: int, level: Level = Level.NORMAL, *, tenant: int | None = None) -> None:
        """So many tasks wait, and the level is this."""
        self.stage.submit(KIND, waiting, tenant=tenant or self.tenant)
        set_level(self.stage, level)
        assert self.stage.epoch is not None
        Doorkeeper(settings.HARNESS_TOPOLOGY).round(self.stage.connection, epoch=self.stage.epoch)
        time.sleep(1.05)  # a door that looked a moment ago looks again after a second


def made(answer: httpx.Response) -> Any:
    assert answer.status_code == 202, answer.text
    return answer.json()


def test_an_accepted_task_says_when_it_is_expected_to_start(api: Api, line: Line) -> None:
    line.is_so(400)
    body = made(api.submit(KIND))
    assert (body["admission"], body["reason"], body["ready"]) == ("accepted", None, True)
    starts = datetime.fromisoformat(body["expected_start"])
    assert timedelta(seconds=80) < starts - datetime.now(UTC) < timedelta(seconds=120)  # 400 tasks, 4 a second


def test_a_deferred_task_says_so_why_and_when_and_is_listed_as_deferred(api: Api, line: Line) -> None:
    line.is_so(4000, Level.ELEVATED)
    body = made(api.submit(KIND, key="twice"))
    assert (body["admission"], body["ready"], body["state"]) == ("deferred", False, "queued")
    assert body["reason"].startswith("pressure is elevated") and body["expected_start"] is not None
    task = api.http.get(body["links"]["self"]).json()
    assert task["deferred_until"] is not None and task["not_before"] is None
    again = api.submit(KIND, key="twice")
    assert again.status_code == 200 and again.json()["admission"] == "deferred"
    why = api.http.get(body["links"]["why"]).json()
    assert why["reason"]["code"] == "deferred"
    run = api.http.post("/api/v1/runs", json={"nodes": [{"kind": KIND, "input": {}}] * 3})
    assert (run.json()["admission"], run.json()["deferred"]) == ("deferred", 3)


def test_overload_is_503_with_code_level_reason_and_retry_after(api: Api, line: Line) -> None:
    line.is_so(400, Level.CRITICAL)
    answer = api.submit(KIND, priority=3)
    body = assert_problem(answer, 503, "overload")
    assert (body["level"], body["reason"]) == ("critical", "pressure")
    assert 4 <= int(answer.headers["Retry-After"]) <= 660
    run = api.http.post("/api/v1/runs", json={"nodes": [{"kind": KIND, "input": {}}] * 3})
    assert_problem(run, 503, "overload")
    refused = api.http.get("/api/v1/pressure").json()["refused"]
    assert sum(one["tasks"] for one in refused) == 4
    assert {(one["priority"], one["code"], one["reason"]) for one in refused} == {
        (2, "overload", "pressure"),
        (3, "overload", "pressure"),
    }


def test_own_quota_is_429_and_other_tenants_know_nothing_of_it(api: Api, make_api: Any, line: Line) -> None:
    line.stage.connection.execute("UPDATE tenant SET backlog_quota = 5 WHERE id = %s", (line.tenant,))
    line.is_so(5)
    answer = api.submit(KIND)
    assert_problem(answer, 429, "over_quota")
    assert answer.headers["Retry-After"] == "5"
    assert api.http.get("/api/v1/pressure").json()["refused"][0]["code"] == "over_quota"
    assert make_api("other").http.get("/api/v1/pressure").json()["refused"] == []


def test_what_cannot_be_done_in_time_is_refused_naming_its_field(api: Api, line: Line) -> None:
    line.is_so(400)
    soon = (datetime.now(UTC) + timedelta(seconds=60)).isoformat()
    assert assert_problem(api.submit(KIND, deadline=soon), 503, "overload", "deadline")["reason"] == "deadline"
    assert assert_problem(api.submit(KIND, ttl_s=30), 503, "overload", "start_by")["reason"] == "start_by"
    past = (datetime.now(UTC) - timedelta(seconds=60)).isoformat()
    assert_problem(api.submit(KIND, deadline=past), 422, "invalid", "deadline")
    assert_problem(api.submit(KIND, ttl_s=0), 422, "invalid", "ttl_s")


def test_refusals_are_quick_and_admission_costs_next_to_nothing(api: Api, line: Line) -> None:
    """Bounds for a busy machine; the figures are measured by `script/bench overload`."""
    line.is_so(400, Level.CRITICAL)
    took_s = []
    for _ in range(100):
        began_s = time.monotonic()
        assert api.submit(KIND, priority=3).status_code == 503
        took_s.append(time.monotonic() - began_s)
    assert sorted(took_s)[50] < 0.2
