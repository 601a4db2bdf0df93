"""A task's steps over HTTP: how far it is, page by page, what each returned, and nobody else's."""

import uuid
from typing import Any

from tests.dead_letters import with_steps
from tests.stage import Stage
from tests.web.conftest import Api, assert_problem


def test_a_task_shows_how_far_it_is_and_each_step_with_its_result(api: Api, stage_beside: Stage) -> None:
    made = api.submit().json()
    task = stage_beside.one("SELECT id FROM task WHERE public_id = %s", made["task_id"])
    assert api.http.get(made["links"]["self"]).json()["steps"] is None
    with_steps(stage_beside, task)
    assert api.http.get(made["links"]["self"]).json()["steps"] == {"finished": 2, "begun": 3, "current": "step 3"}
    page = api.http.get(made["links"]["steps"], params={"limit": 2}).json()
    assert [(one["ordinal"], one["name"], one["begun"]) for one in page["items"]] == [
        (1, "step 1", 1),
        (2, "step 2", 1),
    ]
    assert page["task_id"] == made["task_id"] and page["items"][0]["result_bytes"] == 19
    rest = api.http.get(made["links"]["steps"], params={"limit": 2, "cursor": page["next"]}).json()
    assert [(one["ordinal"], one["finished_at"], one["result_bytes"]) for one in rest["items"]] == [(3, None, None)]
    assert rest["next"] is None
    one = api.http.get(f"{made['links']['steps']}/1")
    assert one.json()["result"] == {"b": 1, "a": "ä"} and list(one.json()["result"]) == ["b", "a"]
    assert api.http.get(f"{made['links']['steps']}/3").json()["result"] is None


def test_what_is_not_there_or_anothers_is_no_step(api: Api, make_api: Any, stage_beside: Stage) -> None:
    made = api.submit().json()
    with_steps(stage_beside, stage_beside.one("SELECT id FROM task WHERE public_id = %s", made["task_id"]))
    for at in (
        f"{made['links']['steps']}/4",
        f"{made['links']['steps']}/{2**31}",
        f"/api/v1/tasks/{uuid.uuid4()}/steps",
    ):
        assert_problem(api.http.get(at), 404, "not_found")
    assert_problem(api.http.get(made["links"]["steps"], params={"cursor": "x"}), 422, "invalid", "cursor")
    assert_problem(api.http.get(made["links"]["steps"], params={"page": "2"}), 422, "invalid", "page")
    stranger = make_api("stranger")
    assert_problem(stranger.http.get(made["links"]["steps"]), 404, "not_found")
    assert_problem(stranger.http.get(f"{made['links']['steps']}/1"), 404, "not_found")
