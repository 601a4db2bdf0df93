"""Dead letters over HTTP: listed and counted by reason without tracebacks, and sent again as documented."""

import json
import uuid
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.store import keys
from tests.dead_letters import bury, public, with_steps
from tests.stage import Stage
from tests.web.conftest import Api, assert_problem


@pytest.fixture
def tenant(api: Api, stage_beside: Stage) -> int:
    (found,) = [tenant.id for tenant in keys.tenants() if tenant.name == api.tenant]
    return found


def dead(
    stage: Stage, tenant: int, n: int = 1, message: str = "boom", kind: str = "noop.single", **more: Any
) -> list[int]:
    return bury(stage, stage.submit(kind, n=n, tenant=tenant, **more), message)


def test_letters_are_listed_grouped_and_read_without_a_traceback(api: Api, stage_beside: Stage, tenant: int) -> None:
    tasks = dead(stage_beside, tenant, 3, "row {} is odd", input=json.dumps({"tag": "x" * 3000}))
    dead(stage_beside, tenant, 1, "no answer", "noop.fault")
    dead(stage_beside, stage_beside.tenant, 2, "not yours")
    groups = api.http.get("/api/v1/dead-letters/groups").json()
    assert [(group["count"], group["reason"]["pattern"]) for group in groups["items"]] == [
        (3, "row N is odd"),
        (1, "no answer"),
    ]
    assert (groups["looked"], groups["more"]) == (4, False)
    first = api.http.get(
        groups["items"][0]["links"]["letters"], params={"limit": 2, "reason": groups["items"][0]["reason"]["key"]}
    )
    page = first.json()
    assert [item["message"] for item in page["items"]] == [f"row {task} is odd" for task in tasks[:0:-1]]
    rest = api.http.get(
        "/api/v1/dead-letters",
        params={"reason": groups["items"][0]["reason"]["key"], "cursor": page["next"]},
    ).json()
    assert [item["message"] for item in rest["items"]] == [f"row {tasks[0]} is odd"] and rest["next"] is None
    item = page["items"][0]
    assert (item["attempts_used"], item["lost_starts"], item["class"], item["input_cut"]) == (2, 1, "bug", True)
    assert item["events"] == api.http.get(item["links"]["trace"]).json()["events"]
    assert item["events"][-1]["event"] == "submit" and item["reason"] == groups["items"][0]["reason"]["key"]
    one = api.http.get(item["links"]["self"]).json()
    assert one["input"] == {"tag": "x" * 3000}
    assert api.http.get("/api/v1/dead-letters", params={"class": "timeout"}).json()["items"] == []
    for answer in (first, api.http.get(item["links"]["self"]), api.http.get("/api/v1/dead-letters/groups")):
        assert "secret.py" not in answer.text and "not yours" not in answer.text


def test_a_letter_shows_its_last_steps_and_a_preview_what_becomes_of_them(
    api: Api, stage_beside: Stage, tenant: int
) -> None:
    (task,) = dead(stage_beside, tenant, 1, "row is odd", input="{}")
    with_steps(stage_beside, task)
    at = f"/api/v1/dead-letters/{public(stage_beside, task)}"
    letter = api.http.get(at).json()
    assert [(step["name"], step["finished_at"] is None) for step in letter["steps"]] == [
        ("step 1", False),
        ("step 2", False),
        ("step 3", True),
    ]
    assert letter["steps_finished"] == 2
    listed = api.http.get("/api/v1/dead-letters").json()["items"][0]
    assert listed["steps"] == letter["steps"]
    for body, steps in (({}, (2, 0)), ({"input": {"tag": "b"}}, (0, 2))):
        preview = api.http.post(letter["links"]["redrive"], json={"preview": True} | body).json()["preview"]
        assert (preview["steps_kept"], preview["steps_dropped"]) == steps
    assert len(api.http.get(letter["links"]["steps"]).json()["items"]) == 3
    assert api.http.post(letter["links"]["redrive"], json={"input": {"tag": "b"}}).json()["anew"]
    assert api.http.get(letter["links"]["steps"]).json()["items"] == []


def test_a_task_is_sent_again_with_and_without_another_input(api: Api, stage_beside: Stage, tenant: int) -> None:
    kept, changed = dead(stage_beside, tenant, 2)
    at = f"/api/v1/tasks/{public(stage_beside, kept)}/redrive"
    seen = api.http.post(at, json={"preview": True}).json()
    assert (seen["outcome"], seen["anew"], seen["preview"]["tasks"]) == ("preview", False, 1)
    assert seen["task"]["state"] == "failed_terminal" and seen["preview"]["attempts"] == 1
    assert seen["preview"]["usd"] == 0.25 and seen["preview"]["expected_slot_s"] > 0 and seen["preview"]["room"] > 0
    done = api.http.post(at)
    assert done.status_code == 200 and (done.json()["outcome"], done.json()["task"]["state"]) == ("redriven", "queued")
    assert api.http.post(at, json={"reason": "again"}).json()["outcome"] == "already"
    other = f"/api/v1/tasks/{public(stage_beside, changed)}/redrive"
    seen = api.http.post(other, json={"input": {"tag": "b"}, "preview": True}).json()
    assert (seen["anew"], seen["preview"]["anew"]) == (True, 1)
    assert api.http.post(other, json={"input": {"tag": "b"}, "reason": "mended"}).json()["anew"] is True
    event = api.http.get(f"/api/v1/tasks/{public(stage_beside, changed)}/trace").json()["events"][-1]
    assert event["data"] == {"reason": "mended", "input": "changed", "token_epoch": 1}
    assert event["actor"].startswith("key:")


def test_a_redrive_that_cannot_be_names_what_to_mend(api: Api, make_api: Any, stage_beside: Stage, tenant: int) -> None:
    (task,) = dead(stage_beside, tenant)
    at = f"/api/v1/tasks/{public(stage_beside, task)}/redrive"
    assert_problem(api.http.post(at, json={"input": {"tag": ""}}), 422, "invalid", "input.tag")
    assert_problem(api.http.post(at, json={"input": None}), 422, "invalid", "input")
    assert_problem(api.http.post(at, json={"inputs": {}}), 422, "invalid", "inputs")
    assert_problem(api.http.post(at, json={"reason": "x" * 501}), 422, "invalid", "reason")
    assert_problem(api.http.post(at, json={"input": {"tag": "x" * 150_000}}), 413, "too_large", "input")
    (live,) = stage_beside.submit(tenant=tenant)
    stage_beside.connection.execute("UPDATE task SET state = 'paused', ready = false WHERE id = %s", (live,))
    refused = api.http.post(f"/api/v1/tasks/{public(stage_beside, live)}/redrive")
    assert assert_problem(refused, 409, "conflict")["state"] == "paused"
    assert_problem(api.http.post(f"/api/v1/tasks/{uuid.uuid4()}/redrive"), 404, "not_found")
    (foreign,) = dead(stage_beside, stage_beside.tenant)
    assert_problem(api.http.post(f"/api/v1/tasks/{public(stage_beside, foreign)}/redrive"), 404, "not_found")
    assert_problem(api.http.get(f"/api/v1/dead-letters/{public(stage_beside, foreign)}"), 404, "not_found")
    reader = make_api("beta", scopes=("read",))
    assert_problem(reader.http.post(at), 403, "forbidden")
    assert stage_beside.state(task) == "failed_terminal"


def test_many_are_sent_by_reason_or_by_id_and_never_others(api: Api, stage_beside: Stage, tenant: int) -> None:
    odd = dead(stage_beside, tenant, 3, "row {} is odd")
    (other,) = dead(stage_beside, tenant, 1, "no answer")
    (foreign,) = dead(stage_beside, stage_beside.tenant, 1, "row 1 is odd")
    key = api.http.get("/api/v1/dead-letters/groups").json()["items"][0]["reason"]["key"]
    at = "/api/v1/dead-letters/redrive"
    seen = api.http.post(at, json={"reason_key": key, "preview": True}).json()
    assert (seen["redriven"], seen["preview"]["tasks"]) == (0, 3)
    done = api.http.post(at, json={"reason_key": key, "reason": "mended"}).json()
    assert (done["redriven"], done["already"], done["refused"], done["more"]) == (3, 0, [], False)
    assert api.http.post(at, json={"reason_key": key}).json()["redriven"] == 0
    named = [str(public(stage_beside, task)) for task in (odd[0], other)]
    done = api.http.post(at, json={"task_ids": named}).json()
    assert (done["redriven"], done["already"]) == (1, 1)
    assert stage_beside.state(foreign) == "failed_terminal"
    foreign_id = str(public(stage_beside, foreign))
    assert_problem(api.http.post(at, json={"task_ids": [foreign_id]}), 404, "not_found", "task_ids")
    assert_problem(api.http.post(at, json={}), 422, "invalid", "task_ids")
    assert_problem(api.http.post(at, json={"kind": "a\0b"}), 422, "invalid", "kind")
    assert_problem(api.http.post(at, json={"class": "a\0b", "preview": True}), 422, "invalid", "class")
    assert_problem(api.http.post(at, json={"task_ids": named, "kind": "noop"}), 422, "invalid", "task_ids")
    assert_problem(api.http.post(at, json={"reason_key": "x"}), 422, "invalid", "reason_key")
    nothing = api.http.post(at, json={"kind": "no.such.kind"}).json()
    assert (nothing["redriven"], nothing["refused"]) == (0, [])


def test_a_full_backlog_refuses_one_with_429_and_counts_many(make_api: Any, stage_beside: Stage) -> None:
    full = make_api("full", backlog_quota=1)
    (tenant,) = [tenant.id for tenant in keys.tenants() if tenant.name == "full"]
    tasks = dead(stage_beside, tenant, 3)
    assert full.http.post("/api/v1/dead-letters/redrive", json={"class": "bug"}).json()["refused"][0]["count"] == 2
    left = [task for task in tasks if stage_beside.state(task) == "failed_terminal"]
    answer = full.http.post(f"/api/v1/tasks/{public(stage_beside, left[0])}/redrive")
    assert_problem(answer, 429, "over_quota")
    assert int(answer.headers["Retry-After"]) >= 1


def test_queries_that_are_not_understood_are_refused(api: Api) -> None:
    for query in ({"cursor": "x"}, {"cursor": "djE6MTc"}, {"reason": "zz"}, {"limit": 0}, {"state": "queued"}):
        answer = api.http.get("/api/v1/dead-letters", params=query)
        assert_problem(answer, 422, "invalid", next(iter(query)))
    assert_problem(api.http.get("/api/v1/dead-letters/groups", params={"reason": "x"}), 422, "invalid", "reason")


_JSON = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6) | st.lists(st.integers(), max_size=2)
)
_ONE = st.fixed_dictionaries(
    {},
    optional={
        "input": st.fixed_dictionaries({}, optional={"tag": _JSON, "i": _JSON, "x": _JSON}) | _JSON,
        "preview": st.booleans() | _JSON,
        "reason": st.text(max_size=6) | _JSON,
        "x": _JSON,
    },
)
_MANY = st.fixed_dictionaries(
    {},
    optional={
        "task_ids": st.lists(st.uuids().map(str) | _JSON, max_size=3) | _JSON,
        "kind": st.sampled_from(["noop.single", "none"]) | _JSON,
        "class": st.sampled_from(["bug", "timeout"]) | _JSON,
        "reason_key": st.sampled_from(["0" * 16, "x"]) | _JSON,
        "preview": st.booleans() | _JSON,
    },
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(one=_ONE, many=_MANY)
def test_whatever_is_sent_is_answered(
    api: Api, stage_beside: Stage, tenant: int, one: dict[str, Any], many: dict[str, Any]
) -> None:
    row = stage_beside.one("SELECT id FROM task WHERE tenant_id = %s LIMIT 1", tenant)
    task = row or stage_beside.submit("noop.single", tenant=tenant)[0]
    if stage_beside.state(task) == "queued":
        bury(stage_beside, [task])
    for path, body in (
        (f"/api/v1/tasks/{public(stage_beside, task)}/redrive", one),
        ("/api/v1/dead-letters/redrive", many),
    ):
        answer = api.http.post(path, content=json.dumps(body))
        assert answer.status_code in {200, 400, 404, 409, 413, 422}, (path, body, answer.text)
