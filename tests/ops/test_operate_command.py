"""`manage.py operate`: one command for tasks, scopes and filters."""

import json
import os
import subprocess
import sys
import uuid
from io import StringIO
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command

from harness.engine import operate
from harness.policy.lifecycle import State
from harness.store.backlog import insert_run
from tests.stage import Stage
from tests.store.forced import into

FROM = {"requeue": State.FAILED_RETRYABLE, "redrive": State.FAILED_TERMINAL}  # else: queued
DOES = {
    "cancel": ("cancelled", "cancelled"),
    "pause": ("paused", "paused"),
    "resume": ("resumed", "queued"),
    "requeue": ("requeued", "queued"),
    "priority": ("reprioritised", "queued"),
    "redrive": ("redriven", "queued"),
}


@pytest.fixture
def command(stage: Stage, settings: Any) -> Any:
    settings.DATABASE_URL = stage.url

    def call(*arguments: str) -> Any:
        out = StringIO()
        call_command("operate", *arguments, "--reason", "a test", "--json", stdout=out)
        return json.loads(out.getvalue())

    return call


def test_every_verb_is_offered() -> None:
    for name in operate.VERBS:
        with pytest.raises(SystemExit) as raised:
            call_command("operate", name, "--help", stdout=StringIO())
        assert raised.value.code == 0


def test_a_task_is_paused_resumed_and_cancelled_with_name_and_reason(stage: Stage, command: Any) -> None:
    (task,) = stage.submit()
    public = str(stage.one("SELECT public_id FROM task WHERE id = %s", task))
    assert command("pause", "--task", public) == {"outcome": "paused"}
    assert command("pause", "--task", public) == {"outcome": "already"}
    assert command("resume", "--task", public) == {"outcome": "resumed"}
    assert command("priority", "--task", public, "--to", "p0") == {"outcome": "reprioritised"}
    assert command("cancel", "--task", public) == {"outcome": "cancelled"}
    with pytest.raises(CommandError, match="has ended"):
        command("pause", "--task", public)
    with pytest.raises(CommandError, match="no task"):
        command("cancel", "--task", str(uuid.uuid4()))
    rows = stage.connection.execute(
        "SELECT event, actor LIKE 'operator:%%', data ->> 'reason' FROM event WHERE task_id = %s ORDER BY seq", (task,)
    ).fetchall()
    assert rows[1:] == [(event, True, "a test") for event in ("pause", "resume", "reprioritise", "cancel")]


def test_an_option_that_one_task_does_not_know_is_refused_and_nothing_is_done(stage: Stage, command: Any) -> None:
    (task,) = stage.submit()
    public = str(stage.one("SELECT public_id FROM task WHERE id = %s", task))
    with pytest.raises(CommandError, match="preview"):
        command("cancel", "--task", public, "--preview")
    with pytest.raises(CommandError, match="until"):
        command("pause", "--task", public, "--until", "2999-01-01T00:00+00:00")
    assert stage.events(task) == ["submit"]


def test_a_filter_is_counted_and_then_done(stage: Stage, command: Any) -> None:
    stage.submit(n=5, priority=3)
    stage.submit(n=2)
    assert command("cancel", "--priority", "p3", "--preview") == {
        "matching": 5,
        "more": False,
        "by_state": {"queued": 5},
    }
    done = command("cancel", "--priority", "p3")
    assert (done["matched"], done["done"]) == (5, {"cancelled": 5})
    again = command("cancel", "--priority", "p3")
    assert (again["matched"], again["done"], again["refused"]) == ("nothing", {}, {})
    assert command("cancel", "--tenant", "acme", "--kind", "noop.single")["done"] == {"cancelled": 2}
    for wrong, told in ((("--tenant", "nobody"), "no tenant"), (("--tag", "x"), "tenant"), ((), "filter")):
        with pytest.raises(CommandError, match=told):
            command("cancel", *wrong)


def test_pause_and_resume_of_a_scope_write_a_row_and_no_task(stage: Stage, command: Any) -> None:
    run = uuid.uuid4()
    number = insert_run(stage.connection, public_id=run, tenant=stage.tenant, name="", size=1, fanout_cap=None)
    (task,) = stage.submit(run=number)
    for arguments, key in (
        (("--pool", "db"), "db"),
        (("--priority", "p2"), "p2"),
        (("--pool", "db", "--priority", "p2"), "db.p2"),
        (("--tenant", "acme"), str(stage.tenant)),
        (("--run", str(run)), str(number)),
    ):
        assert command("pause", *arguments)["outcome"] == "paused"
        assert stage.one("SELECT key FROM pause WHERE resumed_at IS NULL") == key
        assert command("resume", *arguments)["outcome"] == "resumed"
    assert stage.events(task) == ["submit"]
    with pytest.raises(CommandError, match="isn't paused"):
        command("resume", "--pool", "db")
    with pytest.raises(CommandError, match="zone"):
        command("pause", "--pool", "db", "--until", "2020-01-01T00:00")


def test_what_is_paused_is_listed_by_name_with_who_and_why(stage: Stage, command: Any) -> None:
    def listed(*arguments: str) -> str:
        out = StringIO()
        call_command("operate", "pauses", *arguments, stdout=out)
        return out.getvalue()

    assert listed() == "nothing is paused\n"
    run = uuid.uuid4()
    insert_run(stage.connection, public_id=run, tenant=stage.tenant, name="", size=1, fanout_cap=None)
    command("pause", "--pool", "db", "--until", "2099-01-31T18:00+01:00")
    command("pause", "--tenant", "acme")
    command("pause", "--run", str(run))
    command("pause", "--priority", "p3")
    command("resume", "--priority", "p3")
    assert [(one["scope"], one["key"], one["source"]) for one in json.loads(listed("--json"))] == [
        ("pool", "db", "operator"), ("tenant", "acme", "operator"), ("run", str(run), "operator")
    ]  # fmt: skip
    shown = listed()
    assert "a test" in shown and "2099-01-31 17:00:00" in shown and "it is resumed" in shown and "operator:" in shown


@pytest.mark.parametrize("name", ["pool", "kind"])
def test_a_pool_or_kind_that_is_not_there_is_told(stage: Stage, command: Any, name: str) -> None:
    for words in (["--preview"], []):
        with pytest.raises(CommandError, match=f"{name}: there is no 'nosuch'"):
            command("cancel", f"--{name}", "nosuch", *words)


def test_a_database_that_does_not_answer_is_one_line_that_names_the_fix(settings: Any) -> None:
    settings.DATABASE_URL = "postgresql://nobody@127.0.0.1:1/nothing"
    with pytest.raises(CommandError, match=r"doesn't answer .* `manage.py stack up`"):
        call_command("operate", "pause", "--pool", "db", stdout=StringIO())


def test_a_task_that_someone_has_locked_is_told_in_one_line_and_left_as_it_is(stage: Stage, command: Any) -> None:
    (task,) = stage.submit()
    public = str(stage.one("SELECT public_id FROM task WHERE id = %s", task))
    with psycopg.connect(stage.url) as other:
        other.execute("SELECT FROM task WHERE id = %s FOR UPDATE", (task,))
        with pytest.raises(CommandError, match="someone else holds a lock"):
            command("cancel", "--task", public)
    assert stage.state(task) == "queued"
    assert command("cancel", "--task", public) == {"outcome": "cancelled"}


@pytest.mark.parametrize("verb", operate.VERBS)
def test_each_verb_acts_in_a_process_of_its_own(stage: Stage, verb: str) -> None:
    """As people call it: this process has found the kinds already, theirs has not."""
    (task,) = stage.submit()
    public = stage.one("SELECT public_id FROM task WHERE id = %s", task)
    if verb in FROM:
        into(stage, task, FROM[verb])
    if verb == "resume":
        operate.pause(stage.connection, public, tenant=None, actor="me")
    done = subprocess.run(
        [sys.executable, "manage.py", "operate", verb, "--task", str(public), "--json"]
        + (["--to", "p3"] if verb == "priority" else []),
        env=os.environ | {"DATABASE_URL": stage.url},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    outcome, state = DOES[verb]
    assert json.loads(done.stdout) == {"outcome": outcome}
    assert stage.state(task) == state
