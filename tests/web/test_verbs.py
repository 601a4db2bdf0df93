"""Verbs over HTTP: on a task, on a run, and on all tasks that match."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.stage import Stage
from tests.web.conftest import Api, assert_problem


def do(api: Api, task: str, verb: str, **body: Any) -> Any:
    return api.http.post(f"/api/v1/tasks/{task}/{verb}", json=body)


def test_a_task_is_paused_resumed_and_offers_what_can_be_done(api: Api) -> None:
    made = api.submit("noop", {}).json()
    task = made["task_id"]
    assert set(api.http.get(made["links"]["self"]).json()["can"]) == {"cancel", "pause", "priority"}
    answer = do(api, task, "pause", reason="a holiday")
    assert answer.status_code == 200 and answer.json()["outcome"] == "paused"
    shown = answer.json()["task"]
    assert (shown["state"], shown["holds"], set(shown["can"])) == ("paused", ["tenant"], {"cancel", "resume"})
    assert do(api, task, "pause").json()["outcome"] == "already"
    assert do(api, task, "resume").json()["outcome"] == "resumed"
    assert_problem(do(api, task, "resume"), 409, "conflict")
    assert_problem(do(api, task, "requeue", reason="x" * 501), 422, "invalid", "reason")
    assert do(api, task, "requeue").json()["outcome"] == "already"
    trace = api.http.get(made["links"]["trace"]).json()["events"]
    assert [event["event"] for event in trace] == ["submit", "pause", "resume"]
    assert trace[1]["data"] == {"hold": "tenant", "reason": "a holiday"} and trace[1]["actor"].startswith("key")


def test_a_running_task_shows_the_wish_without_whose_it_is(api: Api, stage_beside: Stage) -> None:
    session = stage_beside.add_session()
    made = api.submit("noop", {}).json()
    (message,) = stage_beside.tick()
    stage_beside.claim(message, session)
    answer = do(api, made["task_id"], "pause")
    assert answer.status_code == 202 and answer.json()["outcome"] == "wished"
    assert answer.json()["task"]["wants"] == "pause" and "resume" in answer.json()["task"]["can"]
    assert do(api, made["task_id"], "resume").json()["task"]["wants"] is None


def test_a_run_is_paused_as_a_whole_and_only_by_its_tenant(api: Api, make_api: Any, stage_beside: Stage) -> None:
    stage_beside.add_session()
    run = api.run(3).json()
    at = run["links"]["self"]
    other: Api = make_api("beta")
    for verb in ("pause", "resume", "cancel", "requeue"):
        assert_problem(other.http.post(f"{at}/{verb}"), 404, "not_found")
    assert_problem(api.http.post(f"{at}/resume"), 409, "conflict")
    until = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    assert api.http.post(f"{at}/pause", json={"reason": "wait", "until": until}).json() == {"outcome": "paused"}
    assert api.http.post(f"{at}/pause", json={"until": until}).json() == {"outcome": "already"}
    assert stage_beside.tick() == []
    assert_problem(api.http.post(f"{at}/pause", json={"until": "2020-01-01T00:00:00Z"}), 422, "invalid", "until")
    assert api.http.post(f"{at}/resume").json() == {"outcome": "resumed"}
    assert api.http.post(f"{at}/cancel", json={"reason": "no"}).json()["done"] == {"cancelled": 3}
    nothing = api.http.post(f"{at}/cancel").json()
    assert (nothing["matched"], nothing["done"], nothing["next"]) == (0, {}, None)


def test_many_tasks_are_counted_and_then_done_within_the_tenant(api: Api, make_api: Any) -> None:
    other: Api = make_api("beta")
    theirs = other.submit("noop", {}, priority=3).json()["task_id"]
    for _ in range(3):
        api.submit("noop", {}, priority=3)
    asked = {"verb": "pause", "filter": {"priority": 3}, "reason": "later"}
    seen = api.http.post("/api/v1/tasks/bulk", json=asked | {"preview": True}).json()
    assert (seen["matching"], seen["more"], seen["by_state"]) == (3, False, {"queued": 3})
    done = api.http.post("/api/v1/tasks/bulk", json=asked).json()
    assert (done["matched"], done["done"], done["next"]) == (3, {"paused": 3}, None)
    assert api.http.post("/api/v1/tasks/bulk", json=asked).json()["already"] == 3
    assert other.http.get(f"/api/v1/tasks/{theirs}").json()["state"] == "queued"
    raised = {"verb": "priority", "filter": {"state": "paused"}, "priority": 2}
    refused = api.http.post("/api/v1/tasks/bulk", json=raised).json()["refused"]
    assert refused == {"it is paused; only a queued task can change its priority": 3}


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({"verb": "cancel", "filter": {}}, 422, "filter"),
        ({"verb": "explode", "filter": {"priority": 3}}, 422, "verb"),
        ({"verb": "priority", "filter": {"priority": 3}}, 422, "priority"),
        ({"verb": "priority", "filter": {"priority": 3}, "priority": 0}, 403, "priority"),
        ({"verb": "cancel", "filter": {"run": str(uuid.uuid4())}}, 404, None),
        ({"verb": "cancel", "filter": {"tenant": 2}}, 422, "filter.tenant"),
        ({"verb": "cancel", "filter": {"kind": "a\0b"}}, 422, "filter.kind"),
        ({"verb": "cancel", "filter": {"pool": "a\0b"}, "preview": True}, 422, "filter.pool"),
        ({"verb": "cancel", "filter": {"tag": "red"}, "cursor": "x"}, 422, "cursor"),
    ],
)
def test_what_a_bulk_verb_can_not_do_names_its_field(
    api: Api, body: dict[str, Any], status: int, field: str | None
) -> None:
    answer = api.http.post("/api/v1/tasks/bulk", json=body)
    assert answer.status_code == status, answer.text
    assert answer.json().get("field") == field
