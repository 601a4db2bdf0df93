"""`manage.py pressure`: the level, each signal with its thresholds, and the changes."""

import json

import pytest
from django.conf import settings
from django.core.management import CommandError

from harness.engine import pressure
from harness.policy.pressure import SIGNALS
from harness.store import door
from tests.engine.test_pressure import fail, judge, later
from tests.ops.test_operators import run
from tests.stage import Stage


def test_before_anything_was_evaluated_it_says_so(database_url: str) -> None:
    assert "nobody has evaluated the pressure yet" in run("pressure")
    assert run("pressure", "--history") == "the level has never changed\n"
    found = json.loads(run("pressure", "--json"))
    assert (found["level"], found["since"], found["stale"]) == ("normal", None, True)


def test_it_shows_the_level_and_every_signal_with_its_thresholds(stage: Stage) -> None:
    judge(stage)
    fail(stage, 20, of=100)
    judge(stage, 2)
    told = run("pressure")
    assert told.startswith("high since ") and "last evaluated" not in told
    lines = {line.split()[0]: line for line in told.splitlines()[2:]}
    assert SIGNALS.keys() <= lines.keys()
    assert "high" in lines["tool_error_rate"] and "0.2" in lines["tool_error_rate"]
    assert "never" in lines["llm_in_use"], "a threshold that is never reached"
    found = json.loads(run("pressure", "--json"))
    assert found["level"] == "high" and not found["stale"]
    assert found["signals"].keys() == SIGNALS.keys()
    rate = found["signals"]["tool_error_rate"]
    assert (rate["value"], rate["score"], rate["hard"], rate["critical"]) == (0.2, 2, True, 0.4)
    assert found["signals"]["llm_in_use"]["missing"], "nobody has seen how calls stand"


def test_it_names_the_queues_that_pressure_has_paused(stage: Stage) -> None:
    stage.submit("noop.single", priority=1)
    fail(stage, 50, of=100)
    judge(stage, 2)
    assert "\npaused: db.p3, until " in run("pressure")
    assert list(json.loads(run("pressure", "--json"))["paused"]) == ["db.p3"]


def test_it_lists_the_changes_with_what_asked_for_them(stage: Stage) -> None:
    judge(stage)
    fail(stage, 20, of=100)
    judge(stage, 2)
    told = run("pressure", "--history")
    assert "tool_error_rate 0.2" in told and "P3 by its floor" in told
    (change,) = json.loads(run("pressure", "--history", "--json"))
    assert (change["from"], change["to"]) == ("normal", "high")
    assert change["signals"]["tool_error_rate"] == {"value": 0.2, "score": 2}
    with pytest.raises(CommandError, match="--most: must be from 1"):
        run("pressure", "--history", "--most", "0")


def test_while_nobody_evaluates_it_says_since_when_the_level_only_holds(stage: Stage) -> None:
    pressure.judge(stage.connection, settings.HARNESS_TOPOLOGY)
    later(stage, 180.0)
    assert "last evaluated 180 s ago, so this holds: is beat running" in run("pressure")


def test_it_lists_what_doors_refused_by_minute_and_reason(stage: Stage) -> None:
    assert run("pressure", "--refused") == "no door has refused or deferred anything\n"
    door.tell(
        stage.connection,
        [
            door.Answer(
                age_s=0.0,
                tenant=stage.tenant,
                pool="db",
                priority=3,
                signature="",
                code="overload",
                reason="pressure",
                tasks=tasks,
                once=1,
            )
            for tasks in (5, 1000)
        ],
    )
    line = run("pressure", "--refused").splitlines()[-1].split()
    assert line[-4:] == ["P3", "overload", "pressure", "1,005"]
    (found,) = json.loads(run("pressure", "--refused", "--json"))
    assert (found["priority"], found["code"], found["reason"], found["tasks"]) == (3, "overload", "pressure", 1005)
    with pytest.raises(CommandError, match="--minutes"):
        run("pressure", "--refused", "--minutes", "0")
