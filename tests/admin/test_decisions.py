"""What a task asks, on its page, and operators who decide it: with a reason and their name, once."""

import re
from typing import Any

import pytest
from django.test import Client
from pydantic import BaseModel

from harness.engine import execute
from harness.kinds import Context, kind
from harness.store import approvals, transitions
from tests.admin.conftest import House


class Nothing(BaseModel):
    """Any input."""


@kind("test.asking_admin", pool="db", input=Nothing)
def asking(ctx: Context, payload: Nothing) -> Any:
    return ctx.ask("Send it?", choices=["by mail", "on paper"], timeout_s=3600)


@pytest.fixture
def task(house: House) -> int:
    (task,) = house.stage.submit("test.asking_admin", tenant=house.ours)
    with house.stage.process(house.stage.add_session()) as process:
        for message in list(house.stage.tick()):
            execute.run_lease(process, message.lease, message.token)
    assert house.stage.state(task) == "waiting_approval"
    return task


def page(client: Client, at: str) -> Any:
    return client.get(at, follow=True)


def send(client: Client, task: int, verb: str, **said: str) -> Any:
    at = f"/admin/store/task/{task}/decide/{verb}/"
    found = re.search(r'name="_once" value="([^"]+)"', client.get(at).content.decode())
    assert found is not None
    said["_once"] = found[1]
    client.post(at, said)
    return client.post(at, said, follow=True)  # a double click


def text(answer: Any) -> str:
    return str(answer.content.decode())


def test_an_operator_approves_with_a_choice_and_a_reason_once(house: House, task: int) -> None:
    operator = house.login("operator")
    shown = text(page(operator, f"/admin/store/task/{task}/change/"))
    assert "What it asks" in shown and "Send it?" in shown and "waits for a decision until" in shown
    assert f"/admin/store/task/{task}/decide/approve/" in shown and "/decide/reask/" not in shown
    form = text(page(operator, f"/admin/store/task/{task}/decide/approve/"))
    assert "by mail" in form and "on paper" in form
    answer = send(operator, task, "approve", choice="on paper", reason="as ever")
    assert "acted once" in text(answer)
    question = approvals.last(house.stage.connection, task)
    assert question is not None and (question.choice, question.note) == ("on paper", "as ever")
    assert "operator" in str(question.decided_by)
    shown = text(page(operator, f"/admin/store/task/{task}/change/"))
    assert "approved (on paper) by" in shown and "Decided at" in shown and "/decide/approve/" not in shown
    assert house.stage.events(task).count("approve") == 1
    assert "isn&#x27;t possible now" in text(page(operator, f"/admin/store/task/{task}/decide/deny/"))


def test_without_a_reason_or_a_choice_nothing_is_decided(house: House, task: int) -> None:
    operator = house.login("operator")
    for said in ({"choice": "by mail"}, {"reason": "x"}, {"choice": "by fax", "reason": "x"}):
        send(operator, task, "approve", **said)
        assert house.stage.events(task)[-1] == "ask"


def test_a_no_ends_it_and_what_ran_out_is_asked_again(house: House, task: int) -> None:
    operator = house.login("operator")
    house.stage.connection.execute("UPDATE approval SET deadline = clock_timestamp() WHERE task_id = %s", (task,))
    transitions.time_out(house.stage.connection, actor="sweep")
    shown = text(page(operator, f"/admin/store/task/{task}/change/"))
    assert "nobody decided in time" in shown and "/decide/reask/" in shown
    send(operator, task, "reask", reason="please")
    assert house.stage.state(task) == "waiting_approval"
    send(operator, task, "deny", reason="too late")
    assert house.stage.state(task) == "cancelled"
    assert "denied by" in text(page(operator, f"/admin/store/task/{task}/change/"))


def test_who_may_not_act_or_see_decides_nothing(house: House, task: int) -> None:
    at = f"/admin/store/task/{task}/decide/approve/"
    assert house.login("viewer").get(at).status_code == 404
    assert "/decide/" not in text(page(house.login("viewer"), f"/admin/store/task/{task}/change/"))
    assert house.login("loose").get(at).status_code in (302, 403, 404)
    (theirs,) = house.stage.submit("noop.single", tenant=house.theirs)
    assert house.login("ours-admin").get(f"/admin/store/task/{theirs}/decide/approve/").status_code == 404
    send(house.login("ours-admin"), task, "approve", choice="by mail", reason="ok")
    assert house.stage.row(task)["ready"]
