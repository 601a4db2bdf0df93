"""A task from its submission over HTTP to its result, as its tenant sees it."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from harness.engine.process import ProcessState
from tests.stage import Stage
from tests.web.conftest import Api, assert_problem


def test_a_submitted_task_is_a_row_with_its_trace_when_202_is_sent_though_no_broker_is_there(
    api: Api, stage_beside: Stage
) -> None:
    answer = api.submit("noop", {"i": 7}, priority=1)
    assert answer.status_code == 202
    made = answer.json()
    assert (made["state"], made["ready"], made["priority"], made["existing"]) == ("queued", True, 1, False)
    task = stage_beside.one("SELECT id FROM task WHERE public_id = %s", made["task_id"])
    assert stage_beside.events(task) == ["submit"]
    assert stage_beside.one("SELECT input FROM task_body WHERE task_id = %s", task) == {"i": 7}
    assert api.http.get(made["links"]["self"]).json()["task_id"] == made["task_id"]


def test_the_result_and_the_trace_are_there_when_the_task_has_run(api: Api, stage_beside: Stage) -> None:
    text = "# Title\n\nSome words."
    made = api.submit("ingest.document", {"name": "a.md", "content": text, "content_type": "text/markdown"}).json()
    session = stage_beside.add_session({"ingest": 1})
    with stage_beside.process(session) as process:
        stage_beside.run_all(process)
    task = api.http.get(made["links"]["self"]).json()
    assert (task["state"], task["attempts_used"], task["can_cancel"]) == ("succeeded", 0, False)
    assert task["result"]["title"] == "Title"
    assert task["created_at"] <= task["first_claimed_at"] <= task["finished_at"]
    trace = api.http.get(made["links"]["trace"]).json()
    assert [event["event"] for event in trace["events"]] == ["submit", "claim", "succeed"]
    assert [event["seq"] for event in trace["events"]] == [1, 2, 3] and trace["next"] is None
    first = api.http.get(made["links"]["trace"], params={"limit": 2}).json()
    rest = api.http.get(made["links"]["trace"], params={"limit": 2, "cursor": first["next"]}).json()
    assert first["events"] + rest["events"] == trace["events"]


def test_a_failed_task_shows_class_and_message_but_no_traceback(api: Api, stage_beside: Stage) -> None:
    made = api.submit("noop.fault", {"fail": "permanent"}).json()
    session = stage_beside.add_session()
    with stage_beside.process(session) as process:
        stage_beside.run_all(process)
    answer = api.http.get(made["links"]["self"])
    task = answer.json()
    assert task["state"] == "failed_terminal"
    assert set(task["error"]) == {"class", "message"} and "as asked" in task["error"]["message"]
    for text in (answer.text, api.http.get(made["links"]["trace"]).text):
        assert "Traceback" not in text and "traceback" not in text


def test_times_are_kept_and_a_task_for_later_is_not_ready(api: Api, stage_beside: Stage) -> None:
    at = datetime.now(UTC) + timedelta(hours=1)
    late = at + timedelta(hours=1)
    made = api.submit(not_before=at.isoformat(), start_by=late.isoformat(), deadline=late.isoformat()).json()
    assert made["ready"] is False
    task = api.http.get(made["links"]["self"]).json()
    assert datetime.fromisoformat(task["not_before"]) == at and datetime.fromisoformat(task["deadline"]) == late
    assert stage_beside.tick() == []


def test_a_list_pages_through_all_tasks_once_newest_first(api: Api) -> None:
    made = [api.submit("noop", {"i": i}).json()["task_id"] for i in range(7)]
    seen: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = api.http.get("/api/v1/tasks", params={"limit": 3} | ({"cursor": cursor} if cursor else {})).json()
        seen += [task["task_id"] for task in page["items"]]
        cursor = page["next"]
        api.submit("noop", {"i": 100})  # what comes in meanwhile doesn't shift the pages
    assert seen == made[::-1]


def test_a_list_is_filtered_by_state_kind_priority_and_run(api: Api) -> None:
    first = api.submit("noop", {"i": 1}, priority=1).json()["task_id"]
    second = api.submit("noop.single", {"i": 2}, priority=3).json()["task_id"]
    run = api.run(2).json()
    api.http.post(f"/api/v1/tasks/{first}/cancel")

    def listed(**filters: Any) -> set[str]:
        return {task["task_id"] for task in api.http.get("/api/v1/tasks", params=filters).json()["items"]}

    assert listed(state="cancelled") == {first}
    assert listed(kind="noop.single") == {second}
    assert listed(priority=3) == {second}
    assert listed(run=run["run_id"]) == set(run["task_ids"])
    assert listed(run=run["run_id"], state="cancelled") == set()
    assert listed(run=str(uuid.uuid4())) == set()
    assert len(listed()) == 4


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"state": "waiting"}, "state"),
        ({"stat": "queued"}, "stat"),
        ({"limit": "0"}, "limit"),
        ({"limit": "201"}, "limit"),
        ({"cursor": "abc"}, "cursor"),
        ({"cursor": "djE6LTE"}, "cursor"),
        ({"run": "x"}, "run"),
        ({"priority": "4"}, "priority"),
        ({"kind": "a\x00b"}, "kind"),
    ],
)
def test_a_wrong_filter_is_named(api: Api, query: dict[str, str], field: str) -> None:
    assert_problem(api.http.get("/api/v1/tasks", params=query), 422, "invalid", field)


def test_cancelling_a_queued_task_ends_it_and_again_says_already(api: Api) -> None:
    made = api.submit().json()
    answer = api.http.post(made["links"]["cancel"], json={"reason": "not needed"})
    assert answer.status_code == 200
    assert answer.json()["outcome"] == "cancelled" and answer.json()["task"]["state"] == "cancelled"
    event = api.http.get(made["links"]["trace"]).json()["events"][-1]
    assert (event["event"], event["data"]) == ("cancel", {"reason": "not needed"})
    assert event["actor"].startswith("key:")
    assert api.http.post(made["links"]["cancel"]).json()["outcome"] == "already"


def test_cancelling_a_running_task_is_a_wish_and_a_finished_one_a_conflict(api: Api, stage_beside: Stage) -> None:
    made = api.submit("noop.single").json()
    session = stage_beside.add_session()
    (message,) = stage_beside.tick()
    assert api.http.get(made["links"]["self"]).json()["released"] is True
    stage_beside.claim(message, session)
    answer = api.http.post(made["links"]["cancel"])
    assert answer.status_code == 202 and answer.json()["outcome"] == "wished"
    task = answer.json()["task"]
    assert (task["state"], task["wants"], task["can_cancel"]) == ("running", "cancel", False)

    done = api.submit("noop").json()
    with stage_beside.process(session) as process:
        finish(stage_beside, process)
    problem = assert_problem(api.http.post(done["links"]["cancel"]), 409, "conflict")
    assert problem["state"] == "succeeded" and problem["task_id"] == done["task_id"]


def finish(stage: Stage, process: ProcessState) -> None:
    stage.run_all(process)


def test_a_cancelled_release_frees_its_slot_at_once(api: Api, stage_beside: Stage) -> None:
    stage_beside.add_session({"db": 1})
    first, second = api.submit("noop.single").json(), api.submit("noop.single").json()
    stage_beside.tick()
    assert api.http.post(first["links"]["cancel"]).json()["outcome"] == "cancelled"
    assert stage_beside.one("SELECT count(*) FROM lease") == 0
    stage_beside.tick()
    assert api.http.get(second["links"]["self"]).json()["released"] is True


def test_a_run_counts_its_tasks_by_state(api: Api) -> None:
    made = api.run(5, name="nightly", fanout_cap=2).json()
    assert made["size"] == 5 and len(made["task_ids"]) == 5
    api.http.post(f"/api/v1/tasks/{made['task_ids'][0]}/cancel")
    run = api.http.get(made["links"]["self"]).json()
    assert (run["name"], run["size"], run["fanout_cap"], run["finished"]) == ("nightly", 5, 2, False)
    assert run["states"] == {"queued": 4, "cancelled": 1}
    page = api.http.get(made["links"]["tasks"]).json()
    assert [task["task_id"] for task in page["items"]] == made["task_ids"][::-1]


def test_the_kinds_are_listed_with_the_schema_of_their_input(api: Api) -> None:
    kinds = {kind["name"]: kind for kind in api.http.get("/api/v1/kinds").json()["items"]}
    assert kinds["ingest.document"]["pool"] == "ingest"
    assert set(kinds["ingest.document"]["input_schema"]["properties"]) >= {"name", "content", "content_type", "url"}


def test_a_filter_that_stands_twice_is_refused_by_name(api: Api) -> None:
    answer = api.http.get("/api/v1/tasks?state=queued&state=running")
    assert answer.status_code == 422
    assert answer.json()["field"] == "state"
