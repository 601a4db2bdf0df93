"""`manage.py approvals`: list what waits, decide it, make a link, set a hook."""

import getpass
import json
from typing import Any

import pytest
from django.core.management import CommandError
from pydantic import BaseModel

from harness.engine import execute
from harness.kinds import Context, kind
from harness.store import approvals
from tests.ops.test_operators import run
from tests.stage import Stage


class Nothing(BaseModel):
    """Any input."""


@kind("test.asking_command", pool="db", input=Nothing)
def asking(ctx: Context, payload: Nothing) -> Any:
    return ctx.ask("Send it?", choices=["by mail", "on paper"])


@pytest.fixture
def tasks(stage: Stage) -> list[str]:
    """Public ids of two tasks that wait for a decision."""
    made = stage.submit("test.asking_command", n=2)
    with stage.process(stage.add_session()) as process:
        for message in list(stage.tick()):
            execute.run_lease(process, message.lease, message.token)
    return [str(stage.one("SELECT public_id FROM task WHERE id = %s", task)) for task in made]


def test_what_waits_is_listed_and_decided(stage: Stage, tasks: list[str]) -> None:
    first, second = tasks
    assert [one["task_id"] for one in json.loads(run("approvals", "list", "--json"))] == tasks
    assert "Send it?" in run("approvals", "list", "acme")
    with pytest.raises(CommandError, match="choice: must be one of"):
        run("approvals", "approve", first)
    assert run("approvals", "approve", first, "--choice", "by mail").strip() == "outcome: approved (by mail)"
    with pytest.raises(CommandError, match=r"decided already: approved \(by mail\) by operator:"):
        run("approvals", "deny", first)
    link = run("approvals", "link", second, "--for", "mia").strip()
    assert "/decide/" in link
    assert run("approvals", "deny", second, "--reason", "no").strip() == "outcome: denied"
    assert "nothing waits" in run("approvals", "list")
    with pytest.raises(CommandError, match="doesn't wait for a decision: it is cancelled"):
        run("approvals", "link", second, "--for", "mia")
    with pytest.raises(CommandError, match="only what nobody decided in time"):
        run("approvals", "reask", second)


def test_a_hook_is_set_and_the_audit_keeps_by_whom_and_no_address(stage: Stage) -> None:
    assert "is told there" in run("approvals", "hook", "acme", "--url", "https://example.com/h?k=s", "--reason", "so")
    assert approvals.hook(stage.connection, stage.tenant) == "https://example.com/h?k=s"
    with pytest.raises(CommandError, match="url"):
        run("approvals", "hook", "acme", "--url", "gopher://x", "--reason", "so")
    with pytest.raises(CommandError, match="no tenant"):
        run("approvals", "hook", "nobody", "--off", "--reason", "so")
    assert "nothing" in run("approvals", "hook", "acme", "--off", "--reason", "so")
    noted = stage.connection.execute(
        "SELECT actor, reason, data::text FROM audit_entry WHERE verb = 'approvals.hook' ORDER BY id"
    ).fetchall()
    assert [row[:2] for row in noted] == [(f"operator:{getpass.getuser()}", "so")] * 2
    assert all("example.com" not in row[2] for row in noted)
