"""Times, tags, search and priorities of tasks over HTTP."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from harness.engine import sweep
from harness.engine.schedules import Firing
from tests.stage import Stage
from tests.web.conftest import Api, assert_problem


def listed(api: Api, **filters: Any) -> list[str]:
    """All ids of a list, over all its pages."""
    seen: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        answer = api.http.get("/api/v1/tasks", params=filters | ({"cursor": cursor} if cursor else {}))
        assert answer.status_code == 200, answer.text
        seen += [task["task_id"] for task in answer.json()["items"]]
        cursor = answer.json()["next"]
    return seen


@pytest.mark.parametrize(("priority", "ttl_s"), [(0, 300), (1, 3600), (2, 86_400), (3, 604_800)])
def test_the_answer_shows_by_when_a_task_must_start(make_api: Any, priority: int, ttl_s: int) -> None:
    api: Api = make_api("urgent", top_priority=0)
    made = api.submit(priority=priority, key="k").json()
    start_by = datetime.fromisoformat(made["start_by"])
    assert abs(start_by - datetime.now(UTC) - timedelta(seconds=ttl_s)) < timedelta(seconds=20)
    assert api.http.get(made["links"]["self"]).json()["start_by"] == made["start_by"]
    assert api.submit(priority=priority, key="k").json()["start_by"] == made["start_by"]


def test_a_run_shows_when_the_first_of_its_tasks_expires(api: Api) -> None:
    nodes = [{"kind": "noop", "input": {}, "ttl_s": 60}, {"kind": "noop", "input": {}}]
    made = api.http.post("/api/v1/runs", json={"nodes": nodes}).json()
    left = datetime.fromisoformat(made["start_by"]) - datetime.now(UTC)
    assert timedelta(seconds=40) < left <= timedelta(seconds=60)


def test_a_task_whose_ttl_is_over_expires_in_the_sweep_and_says_so(api: Api, stage_beside: Stage) -> None:
    made = api.submit(ttl_s=0.001).json()
    lasting = api.submit(deadline=(datetime.now(UTC) + timedelta(hours=1)).isoformat()).json()
    stage_beside.connection.execute(
        "UPDATE task SET deadline = now() WHERE public_id = %s", (lasting["task_id"],)
    )  # an hour later
    assert stage_beside.epoch is not None
    assert sweep.sweep(stage_beside.connection, epoch=stage_beside.epoch, firing=Firing()).expired == 2
    for one in (made, lasting):
        task = api.http.get(one["links"]["self"]).json()
        assert (task["state"], task["error"]["class"]) == ("failed_terminal", "expired")


def test_start_by_is_void_once_a_worker_has_begun(api: Api, stage_beside: Stage) -> None:
    made = api.submit("noop.single", ttl_s=600).json()
    session = stage_beside.add_session()
    (message,) = stage_beside.tick()
    stage_beside.claim(message, session)
    assert api.http.get(made["links"]["self"]).json()["start_by"] is None


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"ttl_s": 0}, "ttl_s"),
        ({"ttl_s": -5}, "ttl_s"),
        ({"ttl_s": "60"}, "ttl_s"),
        ({"ttl_s": 1e300}, "ttl_s"),
        ({"ttl_s": 5, "start_by": "2190-01-01T00:00:00Z"}, "start_by"),
        ({"ttl_s": 5, "start_by": "2090-01-01T00:00:00Z"}, "ttl_s"),
        ({"deadline": "2020-01-01T00:00:00Z"}, "deadline"),
        ({"start_by": "2020-01-01T00:00:00Z"}, "start_by"),
        ({"title": "x" * 201}, "title"),
        ({"title": "a\tb"}, "title"),
        ({"tags": ["a", "b c"]}, "tags[1]"),
        ({"tags": ["x" * 65]}, "tags[0]"),
        ({"tags": [str(i) for i in range(11)]}, "tags"),
        ({"tags": "red"}, "tags"),
    ],
)
def test_a_wrong_time_title_or_tag_is_named(api: Api, wrong: dict[str, Any], field: str) -> None:
    assert_problem(api.submit(**wrong), 422, "invalid", field)
    run = api.http.post("/api/v1/runs", json={"nodes": [{"kind": "noop", "input": {}, **wrong}]})
    assert_problem(run, 422, "invalid", f"nodes[0].{field}")


def test_tags_are_kept_in_order_shown_and_found(api: Api, make_api: Any) -> None:
    red = api.submit(tags=["red", "team:a", "red"]).json()["task_id"]
    both = api.submit(tags=["red", "blue"], title="Both").json()["task_id"]
    api.submit()
    make_api("beta").submit(tags=["red"])
    task = api.http.get(f"/api/v1/tasks/{red}").json()
    assert (task["tags"], task["title"]) == (["red", "team:a"], "")
    assert listed(api, tag="red") == [both, red]
    assert listed(api, tag=["red", "blue"]) == [both]
    assert listed(api, tag="Red") == [] and listed(api, tag="redd") == []
    assert listed(api, tag="red", state="cancelled") == []
    api.http.post(f"/api/v1/tasks/{red}/cancel")
    assert listed(api, tag="red", state="cancelled") == [red]


def test_search_finds_words_of_title_tags_kind_and_input_of_marked_tasks_only(api: Api) -> None:
    text = {"name": "invoice-17.md", "content": "# Größe\n\nfor Acme", "content_type": "text/markdown"}
    found = api.submit("ingest.document", text, title="Quarterly Report", tags=["team:red"]).json()["task_id"]
    api.submit("ingest.document", text)  # neither title nor tags: not searched
    for q in ("quarterly", "REPORT quarterly", "invoice", "17", "größe acme", "red", "ingest", "GRÖSSE"):
        assert listed(api, q=q) == [found], q
    for q in ("quarter", "report missing", "invoic"):
        assert listed(api, q=q) == [], q
    assert listed(api, q="report", tag="team:red", kind="ingest.document") == [found]
    assert listed(api, q="report", kind="noop") == []


def test_a_search_pages_through_all_that_match_newest_first(api: Api) -> None:
    made = [api.submit(title=f"Common number{i % 2}").json()["task_id"] for i in range(9)]
    assert listed(api, q="common", limit=2) == made[::-1]
    assert listed(api, q="common number1", limit=2) == made[1::2][::-1]
    run = api.http.post("/api/v1/runs", json={"nodes": [{"kind": "noop", "input": {}, "title": "Common"}]}).json()
    assert listed(api, q="common", run=run["run_id"]) == run["task_ids"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"q": ""}, "q"),
        ({"q": "?!"}, "q"),
        ({"q": "a b c d e f g h i"}, "q"),
        ({"q": "x" * 201}, "q"),
        ({"tag": "a b"}, "tag[0]"),
        ({"tag": ["a"] * 11}, "tag"),
        ({"schedule": "x"}, "schedule"),
    ],
)
def test_a_wrong_search_is_named(api: Api, query: dict[str, Any], field: str) -> None:
    assert_problem(api.http.get("/api/v1/tasks", params=query), 422, "invalid", field)


def test_a_priority_is_changed_while_the_task_waits_and_refused_when_it_has_a_slot(
    api: Api, stage_beside: Stage
) -> None:
    made = api.submit("noop.single", priority=3).json()
    at = made["links"]["priority"]
    answer = api.http.post(at, json={"priority": 1, "reason": "a customer waits"})
    assert (answer.status_code, answer.json()["outcome"]) == (200, "reprioritised")
    assert (answer.json()["task"]["priority"], answer.json()["task"]["start_by"]) == (1, made["start_by"])
    event = api.http.get(made["links"]["trace"]).json()["events"][-1]
    assert (event["event"], event["data"]) == ("reprioritise", {"from": 3, "to": 1, "reason": "a customer waits"})
    assert api.http.post(at, json={"priority": 1}).json()["outcome"] == "already"
    assert_problem(api.http.post(at, json={"priority": 0}), 403, "forbidden", "priority")
    assert_problem(api.http.post(at, json={"priority": 4}), 422, "invalid", "priority")
    assert_problem(api.http.post(at, json={}), 422, "invalid", "priority")
    stage_beside.add_session()
    (message,) = stage_beside.tick()
    assert message.queue == "db.p1"
    assert_problem(api.http.post(at, json={"priority": 2}), 409, "conflict")


def test_a_runs_waiting_tasks_change_their_priority_together(api: Api, make_api: Any) -> None:
    made = api.run(5).json()
    api.http.post(f"/api/v1/tasks/{made['task_ids'][0]}/cancel")
    answer = api.http.post(f"{made['links']['self']}/priority", json={"priority": 3})
    assert answer.status_code == 200, answer.text
    assert answer.json()["done"] == {"reprioritised": 4} and answer.json()["refused"] == {}
    assert set(listed(api, run=made["run_id"], priority=3)) == set(made["task_ids"][1:])
    other: Api = make_api("beta")
    assert_problem(other.http.post(f"{made['links']['self']}/priority", json={"priority": 3}), 404, "not_found")
