"""Why a task waits, over HTTP, in the admin and by command: the same words, and never a figure of others but counts."""

import io
import json
from typing import Any

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command

from harness.engine import operate, reasons
from tests.engine.downstreams import LLM, Downstreams
from tests.stage import Stage
from tests.web.conftest import Api, assert_problem


@pytest.fixture
def leader(api: Api, stage_beside: Stage) -> Stage:
    """The leading dispatcher beside the web process."""
    stage_beside.hold_lead()
    return stage_beside


def look(stage: Stage) -> None:
    assert stage.epoch is not None
    noted = reasons.Noted()
    for _ in range(2):
        reasons.pass_over(
            stage.connection, settings.HARNESS_TOPOLOGY, noted, course=stage.memory.course, epoch=stage.epoch
        )


def why(api: Api, task_id: str) -> Any:
    answer = api.http.get(f"/api/v1/tasks/{task_id}/why")
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_waiting_task_names_what_holds_it_since_when_and_what_frees_it(api: Api, leader: Stage) -> None:
    made = api.submit().json()
    assert made["links"]["why"] == f"/api/v1/tasks/{made['task_id']}/why"
    look(leader)
    found = why(api, made["task_id"])
    assert (found["state"], found["ahead"], found["whole"], found["others"]) == ("queued", 0, True, [])
    reason = found["reason"]
    assert (reason["code"], reason["subject"], reason["who"]) == ("no_worker", "db", "person")
    assert reason["words"] == "No db worker is running." and reason["frees"] == "It starts when an operator starts one."
    assert reason["since"].endswith("Z") and found["waits_since"].endswith("Z") and found["waited_s"] > 0
    assert sum(one["seconds"] for one in found["spent"]) == pytest.approx(found["waited_s"], abs=0.01)
    public = made["task_id"]
    out = io.StringIO()
    call_command("why", public, "--json", stdout=out)
    (by_command,) = json.loads(out.getvalue())["reasons"]
    assert {name: by_command[name] for name in ("code", "words", "frees")} == {
        name: reason[name] for name in ("code", "words", "frees")
    }
    told = io.StringIO()
    call_command("why", public, stdout=told)
    assert "no_worker: No db worker is running. (since " in told.getvalue()
    with pytest.raises(CommandError, match="there is no task"):
        call_command("why", "00000000-0000-0000-0000-000000000000")


def test_who_paused_it_and_why_is_told_for_each_hold(api: Api, leader: Stage) -> None:
    made = api.submit().json()
    task = leader.one("SELECT public_id FROM task WHERE public_id = %s", made["task_id"])
    with leader.open() as connection:
        operate.pause(connection, task, tenant=None, actor="jo", reason="it burns")
    api.http.post(made["links"]["pause"], json={"reason": "wrong input"})
    found = why(api, made["task_id"])
    assert found["state"] == "paused"
    said = [(one["code"], one["who"], one["facts"]["reason"]) for one in (found["reason"], *found["others"])]
    assert said == [("held", "person", "it burns"), ("held", "you", "wrong input")]
    assert "Paused by jo since " in found["reason"]["words"]


def test_others_are_told_as_counts_alone(api: Api, make_api: Any, leader: Stage) -> None:
    other: Api = make_api("somebody-else")
    waits = api.submit().json()["task_id"]
    theirs = [other.submit().json()["task_id"] for _ in range(7)]
    leader.add_session({"tool_read": 1})
    leader.add_session({"db": 1})
    leader.tick()
    look(leader)
    if leader.one("SELECT tenant.name FROM lease JOIN tenant ON tenant.id = lease.tenant_id") == "alpha":
        waits = api.submit().json()["task_id"]  # mine has started
        look(leader)
    answer = api.http.get(f"/api/v1/tasks/{waits}/why")
    assert answer.json()["reason"]["code"] == "turn" and answer.json()["reason"]["facts"]["others"] == 1
    assert "somebody-else" not in answer.text and not any(task in answer.text for task in theirs)
    assert_problem(api.http.get(f"/api/v1/tasks/{theirs[0]}/why"), 404, "not_found")


def test_what_ended_waits_for_nothing_and_still_tells_what_it_waited_for(api: Api, leader: Stage) -> None:
    made = api.submit().json()
    look(leader)
    api.http.post(made["links"]["cancel"])
    found = why(api, made["task_id"])
    assert (found["state"], found["reason"], found["waits_since"]) == ("cancelled", None, None)
    assert found["spent"] and found["waited_s"] > 0


def test_an_open_breaker_is_told_over_http_and_by_command_with_its_end_and_no_attempt_is_spent(
    api: Api, leader: Stage, broker_url: str
) -> None:
    downstreams = Downstreams(leader, broker_url)
    leader.add_session({"llm": 4})
    downstreams.fail()
    made = api.submit("llm.chat", {"messages": [{"role": "user", "content": "hello"}]}).json()
    assert leader.tick() == []
    look(leader)
    found = why(api, made["task_id"])
    reason = found["reason"]
    assert (reason["code"], reason["subject"], reason["who"]) == ("breaker", LLM, "system")
    assert reason["words"].startswith("Calls to llm:default keep failing since ")
    assert ", so none is sent before " in reason["words"] and reason["words"].endswith(" UTC.")
    assert reason["frees"].endswith("no attempt is spent until then.")
    assert leader.one("SELECT attempts_used + release_no FROM task WHERE public_id = %s", made["task_id"]) == 0
    told = io.StringIO()
    call_command("why", made["task_id"], stdout=told)
    assert "breaker: Calls to llm:default keep failing since " in told.getvalue()
    downstreams.permits.close()
