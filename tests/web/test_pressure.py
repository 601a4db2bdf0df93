"""The level of pressure over HTTP: the level and since when, for every tenant, and nothing of what it is made of."""

from datetime import UTC, datetime, timedelta
from typing import Any

from harness.policy.pressure import Level
from tests.engine.test_pressure import fail, judge, later
from tests.stage import Stage
from tests.web.conftest import Api, assert_problem


def read(api: Api) -> Any:
    answer = api.http.get("/api/v1/pressure")
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_tenant_reads_the_level_since_when_and_whether_it_is_evaluated(api: Api, stage_beside: Stage) -> None:
    assert read(api) == {"level": "normal", "since": None, "seen_at": None, "stale": True, "refused": []}
    judge(stage_beside)
    fail(stage_beside, 20, of=100)
    assert judge(stage_beside, 2).level is Level.HIGH
    found = read(api)
    assert found.keys() == {"level", "since", "seen_at", "stale", "refused"}
    assert (found["level"], found["stale"]) == ("high", False)
    assert datetime.now(UTC) - datetime.fromisoformat(found["since"]) < timedelta(seconds=30)
    later(stage_beside, 60.0)
    assert read(api)["level"] == "high" and read(api)["stale"], "the last level holds"


def test_who_has_no_key_and_who_asks_for_more_is_refused(api: Api) -> None:
    with api.web.client() as nobody:
        assert_problem(nobody.get("/api/v1/pressure"), 401, "unauthenticated")
    assert_problem(api.http.get("/api/v1/pressure?signals=true"), 422, "invalid", "signals")
