"""Expected starts and ends over HTTP: a place and ranges with their age, or a reason; and how far forecasts hold."""

import uuid
from datetime import datetime
from random import Random
from typing import Any

import pytest
from django.conf import settings

from harness.engine import foresee
from tests.stage import Stage
from tests.web.conftest import Api, assert_problem


@pytest.fixture(autouse=True)
def led(stage_beside: Stage) -> None:
    stage_beside.hold_lead()


def make_pass(stage: Stage) -> None:
    foresee.foresee(stage.connection, settings.HARNESS_TOPOLOGY, Random(1), again=True)


def submit(api: Api, **more: Any) -> str:
    answer = api.http.post("/api/v1/tasks", json={"kind": "noop.single", "input": {}} | more)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["task_id"])


def eta(api: Api, task: str) -> Any:
    answer = api.http.get(f"/api/v1/tasks/{task}")
    assert answer.status_code == 200, answer.text
    return answer.json()["eta"]


def test_a_task_tells_its_place_its_start_and_its_end_as_ranges_with_their_age(api: Api, stage_beside: Stage) -> None:
    stage_beside.add_session({"db": 1})
    first, second = submit(api), submit(api)
    assert eta(api, first)["reason"] == "none", "nobody has made a forecast yet"
    make_pass(stage_beside)
    found = eta(api, second)
    assert (found["position"], found["reason"], found["moved"]) == (2, None, None)
    start, end = (
        {name: datetime.fromisoformat(value) for name, value in found[which].items()} for which in ("start", "end")
    )
    assert datetime.fromisoformat(found["at"]) <= start["p50"] <= start["p90"]
    assert start["p50"] < end["p50"] and start["p90"] <= end["p90"]
    assert 0 <= found["age_s"] < 10
    listed = api.http.get("/api/v1/tasks").json()["items"]
    assert {one["task_id"]: one["eta"]["position"] for one in listed} == {first: 1, second: 2}


def test_what_came_after_the_pass_comes_with_the_next_and_what_is_paused_says_so(api: Api, stage_beside: Stage) -> None:
    stage_beside.add_session({"db": 1})
    task = submit(api)
    make_pass(stage_beside)
    assert eta(api, submit(api))["reason"] == "soon"
    acted = api.http.post(f"/api/v1/tasks/{task}/pause", json={}).json()["task"]["eta"]
    assert (acted["reason"], acted["start"]) == ("held", None)


def test_an_ended_task_has_no_expectation(api: Api, stage_beside: Stage) -> None:
    task = submit(api)
    assert api.http.post(f"/api/v1/tasks/{task}/cancel", json={}).json()["task"]["eta"] is None
    assert eta(api, task) is None


def test_old_forecasts_are_withheld(api: Api, stage_beside: Stage) -> None:
    stage_beside.add_session({"db": 1})
    task = submit(api)
    make_pass(stage_beside)
    stage_beside.connection.execute("UPDATE forecast_pass SET at = at - interval '2 minutes'")
    found = eta(api, task)
    assert (found["reason"], found["start"], found["position"]) == ("stale", None, None)
    assert found["age_s"] >= 120
    assert api.http.get("/api/v1/forecasts").json()["stale"] is True


def test_a_run_tells_when_its_last_task_should_end(api: Api, stage_beside: Stage) -> None:
    stage_beside.add_session({"db": 1})
    node = {"kind": "noop.single", "input": {}}
    run = api.http.post("/api/v1/runs", json={"nodes": [node] * 3}).json()["run_id"]
    make_pass(stage_beside)
    found = api.http.get(f"/api/v1/runs/{run}").json()["eta"]
    assert found["end"]["p50"] <= found["end"]["p90"] and found["start"] is None and found["reason"] is None


def test_a_run_with_nodes_that_wait_for_others_says_so_instead_of_an_end(api: Api, stage_beside: Stage) -> None:
    stage_beside.add_session({"db": 4})
    nodes = [{"kind": "noop.single", "input": {}, "name": name} for name in "abcd"]
    nodes[2]["depends_on"], nodes[3]["depends_on"] = ["a", "b"], ["c"]
    made = api.http.post("/api/v1/runs", json={"nodes": nodes}).json()
    make_pass(stage_beside)

    def of_run() -> Any:
        found = api.http.get(f"/api/v1/runs/{made['run_id']}").json()["eta"]
        assert found["end"] is None
        return found["reason"], found["words"].partition(".")[0]

    assert of_run() == ("dependencies", "Waiting for others of it: 2 of its tasks")
    assert eta(api, made["task_ids"][0])["end"], "those in line have theirs"
    assert api.http.post(f"/api/v1/tasks/{made['task_ids'][1]}/pause").status_code == 200
    assert of_run() == ("held", "Held, or waiting for children: 1 of its tasks"), (
        "what a person has to lift comes first"
    )


def test_how_far_forecasts_hold_is_published_to_every_tenant_and_to_nobody_else(api: Api, stage_beside: Stage) -> None:
    before = api.http.get("/api/v1/forecasts").json()
    assert (before["trust"], before["n"], before["stale"], before["at"]) == ("learning", 0, True, None)
    stage_beside.add_session({"db": 1})
    submit(api)
    make_pass(stage_beside)
    found = api.http.get("/api/v1/forecasts").json()
    assert (found["looked_at"], found["waiting"], found["stale"]) == (1, 1, False)
    assert found["p90_covers"] is None, "nothing has been borne out yet"
    with api.web.client() as nobody:
        assert_problem(nobody.get("/api/v1/forecasts"), 401, "unauthenticated")
    assert_problem(api.http.get("/api/v1/forecasts?all=1"), 422, "invalid", "all")
    assert api.http.get(f"/api/v1/tasks/{uuid.uuid4()}").status_code == 404
