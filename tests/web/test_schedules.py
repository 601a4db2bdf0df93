"""Schedules over HTTP: made, shown, changed, stopped and fired, tenant by tenant."""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from harness.engine.schedules import Firing, fire_due
from tests.stage import Stage
from tests.web.conftest import Api, assert_problem

NIGHTLY = {"name": "nightly", "kind": "noop", "input": {"i": 1}, "cron": "30 6 * * MON-FRI", "zone": "Europe/Berlin"}


def make(api: Api, **more: Any) -> httpx.Response:
    return api.http.post("/api/v1/schedules", json=NIGHTLY | more)


def test_a_schedule_is_made_shown_with_its_next_moments_and_brings_a_task_that_names_it(
    api: Api, stage_beside: Stage
) -> None:
    answer = make(api, tags=["red"], title="Morning report", ttl_s=600)
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert (made["enabled"], made["catch_up"], made["fired"], made["author"][:4]) == (True, "one", 0, "key:")
    moments = [datetime.fromisoformat(one) for one in made["upcoming"]]
    assert len(moments) == 5 and moments == sorted(moments)
    assert {(one.hour, one.minute) for one in moments} == {(6, 30)} and moments[0] == datetime.fromisoformat(
        made["next_at"]
    )
    assert api.http.get(made["links"]["self"]).json() == made

    assert fire_due(Firing(), stage_beside.connection, now=moments[0] + timedelta(seconds=1)) == 1
    (task,) = api.http.get(made["links"]["tasks"]).json()["items"]
    assert (task["schedule_id"], task["tags"], task["title"]) == (made["schedule_id"], ["red"], "Morning report")
    assert datetime.fromisoformat(task["scheduled_for"]) == moments[0]
    assert datetime.fromisoformat(task["start_by"]) == moments[0] + timedelta(seconds=601)
    after = api.http.get(made["links"]["self"]).json()
    assert (after["fired"], after["last_task_id"]) == (1, task["task_id"])
    assert datetime.fromisoformat(after["next_at"]) == moments[1]


def test_the_list_pages_through_all_schedules_of_the_tenant_only(api: Api, make_api: Any) -> None:
    made = [make(api, name=f"s{i}").json()["schedule_id"] for i in range(5)]
    make(make_api("beta"), name="s0")
    seen: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = api.http.get("/api/v1/schedules", params={"limit": 2} | ({"cursor": cursor} if cursor else {})).json()
        seen += [one["schedule_id"] for one in page["items"]]
        cursor = page["next"]
    assert seen == made


def test_a_change_says_only_what_is_new(api: Api) -> None:
    made = make(api, priority=3, tags=["red"]).json()
    at = made["links"]["self"]
    changed = api.http.patch(at, json={"input": {"i": 2}, "priority": None}).json()
    assert changed == made | {"input": {"i": 2}, "priority": None, "changed_at": changed["changed_at"]}
    moved = api.http.patch(at, json={"cron": "0 12 * * *", "zone": "UTC"}).json()
    assert moved["next_at"].endswith("T12:00:00Z") and moved["tags"] == ["red"]


def test_pause_resume_and_delete(api: Api, stage_beside: Stage) -> None:
    made = make(api).json()
    paused = api.http.post(made["links"]["pause"], json={"reason": "holidays"}).json()
    assert (paused["enabled"], paused["next_at"], paused["upcoming"]) == (False, None, [])
    assert paused["stopped_because"] == "holidays"
    assert fire_due(Firing(), stage_beside.connection, now=datetime.now(UTC) + timedelta(days=9)) == 0
    assert api.http.post(made["links"]["pause"]).json()["stopped_because"] == "holidays"
    resumed = api.http.post(made["links"]["resume"]).json()
    assert (resumed["enabled"], resumed["stopped_because"], resumed["next_at"]) == (True, None, made["next_at"])
    assert api.http.delete(made["links"]["self"]).status_code == 204
    for answer in (api.http.get(made["links"]["self"]), api.http.delete(made["links"]["self"])):
        assert_problem(answer, 404, "not_found")


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"cron": "0 0 30 2 *"}, "cron"),
        ({"cron": "* * * * * *"}, "cron"),
        ({"cron": 5}, "cron"),
        ({"zone": "Mars/Base"}, "zone"),
        ({"zone": None}, "zone"),
        ({"kind": "nope"}, "kind"),
        ({"input": {"i": "x"}}, "input.i"),
        ({"catch_up": "some"}, "catch_up"),
        ({"name": ""}, "name"),
        ({"name": "a\u0000"}, "name"),
        ({"ttl_s": 0}, "ttl_s"),
        ({"tags": ["a b"]}, "tags[0]"),
        ({"title": "a\nb"}, "title"),
        ({"priority": 4}, "priority"),
        ({"enabled": "yes"}, "enabled"),
        ({"seconds": 1}, "seconds"),
    ],
)
def test_a_wrong_schedule_is_refused_and_the_field_named_also_as_a_change(
    api: Api, wrong: dict[str, Any], field: str
) -> None:
    assert_problem(make(api, **wrong), 422, "invalid", field)
    made = make(api).json()
    assert_problem(api.http.patch(made["links"]["self"], json=wrong), 422, "invalid", field)
    assert api.http.get(made["links"]["self"]).json() == made


def test_a_taken_name_is_a_conflict_and_an_urgent_priority_forbidden(api: Api) -> None:
    make(api)
    assert_problem(make(api), 409, "conflict", "name")
    assert_problem(make(api, name="x", priority=0), 403, "forbidden", "priority")


def test_a_schedule_of_another_tenant_is_not_there(api: Api, make_api: Any) -> None:
    made = make(api).json()
    other: Api = make_api("beta")
    at = made["links"]["self"]
    for answer in (
        other.http.get(at),
        other.http.patch(at, json={"name": "mine"}),
        other.http.delete(at),
        other.http.post(f"{at}/pause"),
        other.http.post(f"{at}/resume"),
    ):
        assert_problem(answer, 404, "not_found")
    reader: Api = make_api("gamma", scopes=("read",))
    assert_problem(make(reader), 403, "forbidden")
