"""`manage.py letters`: what failed for good, by reason, with its traceback for operators; sent again when told to."""

import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from tests.dead_letters import bury, public, with_steps
from tests.stage import Stage


def run(*arguments: str) -> str:
    out = StringIO()
    call_command("letters", *arguments, stdout=out)
    return out.getvalue()


def test_groups_list_and_show(stage: Stage) -> None:
    assert run("list") == run("groups") == "no dead letters\n"
    tasks = bury(stage, stage.submit(n=3), "row {} is odd", "validation")
    bury(stage, stage.submit(tenant=stage.add_tenant("other")), "no answer", "timeout")
    groups = run("groups")
    assert "row N is odd" in groups and "no answer" in groups
    assert "no answer" not in run("groups", "--tenant", "acme")
    (first, *_) = json.loads(run("groups", "--json", "--kind", "noop.single"))["items"]
    assert first["count"] == 3
    listed = run("list", "--reason", first["reason"]["key"], "--most", "2")
    assert f"row {tasks[2]} is odd" in listed and f"row {tasks[0]} is odd" not in listed and "there are more" in listed
    shown = json.loads(run("show", str(public(stage, tasks[0]))))
    assert shown["traceback"] == "File secret.py" and shown["error_class"] == "validation"
    assert len(json.loads(run("list", "--json"))) == 4


def test_a_redrive_says_what_it_would_do_and_does_it_with_yes(stage: Stage) -> None:
    one, two = bury(stage, stage.submit(n=2), "row {} is odd")
    with_steps(stage, one)
    assert json.loads(run("show", str(public(stage, one))))["steps"][0]["name"] == "step 3"
    told = run("redrive", "--kind", "noop.single")
    assert "2 tasks would be sent again, 0 of them anew" in told and "--yes does it" in told
    assert "2 finished steps stay and are not done again; 0 are dropped" in told
    other = run("redrive", str(public(stage, one)), "--input", '{"tag": "b"}')
    assert "0 finished steps stay and are not done again; 2 are dropped and done again" in other
    assert stage.state(one) == "failed_terminal"
    assert json.loads(run("redrive", "--kind", "noop.single", "--json"))["tasks"] == 2
    assert (
        run("redrive", str(public(stage, one)), "--input", '{"tag": "b"}', "--why", "mended", "--yes")
        == "1 sent again\n"
    )
    assert stage.row(one)["token_epoch"] == 1 and stage.state(two) == "failed_terminal"
    actor, data = stage.connection.execute("SELECT actor, data FROM event WHERE event = 'redrive'").fetchone() or (
        "",
        {},
    )
    assert actor.startswith("operator:") and data["reason"] == "mended"
    assert json.loads(run("redrive", "--class", "bug", "--yes", "--json"))["redriven"] == 1
    assert stage.state(two) == "queued"


def test_what_cannot_be_meant_is_refused(stage: Stage) -> None:
    (task,) = bury(stage, stage.submit())
    name = str(public(stage, task))
    for arguments, told in (
        ((), "name tasks"),
        ((name, "--kind", "noop"), "name tasks"),
        ((name, "--input", "{"), "not JSON"),
        (("--class", "bug", "--input", "{}"), "--kind"),
        (("--kind", "noop", "--tenant", "nobody"), "tenant list"),
        (("7d444840-9dc0-11d1-b245-5ffdce74fad2",), "there is no task"),
    ):
        with pytest.raises(CommandError, match=told):
            run("redrive", *arguments, "--yes")
    assert "1 refused: input.tag" in run("redrive", name, "--input", '{"tag": ""}', "--yes")
    assert stage.state(task) == "failed_terminal"
