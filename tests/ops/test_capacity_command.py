"""`manage.py capacity` tells what binds, what runs, what is too much, and refuses what would be."""

import io
import json
from dataclasses import replace
from typing import Any

import pytest
from django.conf import settings
from django.core import checks
from django.core.management import CommandError, call_command

from harness.kinds import registry
from harness.ops.checks import capacity_adds_up
from harness.policy.settings import Topology
from harness.store import resources, sessions
from harness.store.resources import Change, ResourceNow
from tests.stage import Stage


@pytest.fixture(autouse=True)
def _shipped_kinds_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the kinds that other tests have made."""
    registry.discover(*settings.HARNESS_TASK_PACKAGES)
    shipped = {name: one for name, one in registry._KINDS.items() if one.run.__module__.startswith("tasks.")}
    monkeypatch.setattr(registry, "_KINDS", shipped)


def run(*arguments: str) -> tuple[str, int]:
    out, code = io.StringIO(), 0
    try:
        call_command("capacity", *arguments, stdout=out)
    except SystemExit as end:
        code = int(end.code or 0)
    return out.getvalue(), code


def facts(*arguments: str) -> tuple[dict[str, Any], int]:
    text, code = run("--json", *arguments)
    found: dict[str, Any] = json.loads(text)
    return found, code


def test_each_pool_tells_what_binds_it_and_what_follows(stage: Stage) -> None:
    found, code = facts()
    assert code == 0
    llm = found["pools"]["llm"]
    assert (llm["slots"], llm["processes"], llm["derivation"]) == (
        55,
        4,
        "llm:default ceil(1.1 x 50 / 1.00) = 55",
    )
    assert llm["verdict"] == "none runs: its tasks wait"
    db = found["pools"]["db"]
    assert [one["resource"] for one in db["bindings"]] == ["rag:search"]
    assert "db.rollup" in db["kinds_without_downstream"]
    target = found["pools"]["target"]
    assert (target["slots"], target["processes"], target["derivation"]) == (20, 1, "db:main 20")
    assert found["pools"]["cpu"]["derivation"] == "no downstream binds it"
    assert (found["pools"]["browser"]["slots"], found["pools"]["browser"]["derivation"]) == (4, "browser 4")
    assert found["pools"]["mcp"]["derivation"] == "mcp:tools ceil(1.1 x 20 / 1.00) = 22"
    assert not {"system", "quarantine"} & found["pools"].keys()


def test_processes_that_gain_nothing_are_counted(stage: Stage) -> None:
    for _ in range(6):
        stage.add_session({"llm": 16})
    draining = stage.add_session({"llm": 16})
    sessions.start_drain(stage.connection, draining)
    found, _ = facts()
    llm = found["pools"]["llm"]
    assert llm["running"] == {"processes": 6, "slots": 96, "at_work": 0}
    assert llm["beyond"] == 2
    text, _ = run()
    assert "over-provisioned: no work for 2 of them" in text


def test_a_limit_that_others_lowered_shows_with_its_reason_and_sends_nobody_home(stage: Stage) -> None:
    for _ in range(3):
        stage.add_session({"target": 20})
    before, _ = facts()
    assert before["pools"]["target"]["verdict"] == "over-provisioned: 2 of them stand by"
    resources.keep(
        stage.connection,
        [ResourceNow(resource="db:main", limit_now=10, mode="follow", in_flight=10)],
        [Change(resource="db:main", at_s=1_700_000_000.0, old=20, new=10, reason="others_came", mode="follow")],
    )
    found, _ = facts()
    assert found["resources"]["db:main"]["limit_now"] == 10
    assert found["resources"]["db:main"]["changed"] == {"at_s": 1_700_000_000.0, "old": 20, "reason": "others_came"}
    assert found["pools"]["target"] == before["pools"]["target"]
    assert "22:13:20 (others_came)" in run()[0]


def test_waits_are_told_by_process(stage: Stage) -> None:
    session = stage.add_session({"db": 16})
    waits = {"db:main": {"n": 7, "p50_s": 0.002, "p95_s": 0.0123, "max_s": 0.02}}
    assert sessions.beat(stage.connection, session, waits=waits)
    found, _ = facts()
    assert found["processes"][0]["waits"] == waits
    assert "12.3 ms" in run()[0]
    sessions.beat(stage.connection, session)
    assert facts()[0]["processes"][0]["waits"] == waits


def test_connections_are_told_beside_the_budget(stage: Stage) -> None:
    stage.add_session({"db": 16})
    found, _ = facts()
    connections = found["connections"]
    assert (connections["workers"], connections["budget"], connections["kept"]) == (1, 80, 20)
    assert 1 <= connections["server"] <= connections["server_most"]
    # llm 4 x 5, tool_read 3 x 4, tool_write 3 x 4, mcp 6 x 4, browser and sandbox 2 x 3 each, one each of db, ...
    assert connections["workers_wanted"] == 20 + 12 + 12 + 24 + 6 + 6 + 6 + 5 + 4 + 4


def test_forty_workers_of_twenty_slots_are_refused_with_the_derivation(stage: Stage) -> None:
    text, code = run("--workers", "llm=40x20")
    assert code == 1
    refused, slots, hint, *_ = text.splitlines()
    assert refused == "refused"
    assert slots.startswith("pool llm: 40 processes x 20 slots = 800, but its downstreams carry 55")
    assert slots.endswith("(llm:default ceil(1.1 x 50 / 1.00) = 55)")
    assert hint == "  3 do; the other 37 would get no work"
    assert "llm 40 x 5 = 200 connections, but the budget is 80 - 20" in text
    found, code = facts("--workers", "llm=40x20")
    assert (code, found["refused"], [one["id"] for one in found["against"]]) == (1, True, ["slots", "connections"])


def test_what_fits_is_not_refused(stage: Stage) -> None:
    text, code = run("--workers", "llm=3", "--workers", "tool_write=2")
    assert (text.strip(), code) == ("nothing is against it: llm 3, tool_write 2", 0)


@pytest.mark.parametrize("words", ["llm", "llm=0", "llm=-1", "llm=4x0", "llm=4x", "llm=1e9", "nowhere=2", "db=2,llm=2"])
def test_workers_that_make_no_sense_are_refused_with_the_form(words: str) -> None:
    with pytest.raises(CommandError, match=r"must be POOL=N or POOL=NxSLOTS|there is no pool"):
        call_command("capacity", "--workers", words)


def test_the_shipped_file_passes_the_system_check() -> None:
    assert capacity_adds_up() == []


def test_the_system_check_tells_what_does_not_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    shipped: Topology = settings.HARNESS_TOPOLOGY
    small = {
        name: replace(one, capacity=5) if name == "llm:default" else one for name, one in shipped.resources.items()
    }
    monkeypatch.setattr(settings, "HARNESS_TOPOLOGY", replace(shipped, resources=small, database_connections=30))
    found = {one.id: one for one in capacity_adds_up()}
    assert found["harness.capacity.W001"].level == checks.WARNING
    assert "carry 6 (llm:default" in found["harness.capacity.W001"].msg
    assert found["harness.capacity.E001"].level == checks.ERROR


def test_what_does_not_add_up_is_told_by_every_command_that_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    shipped: Topology = settings.HARNESS_TOPOLOGY
    monkeypatch.setattr(settings, "HARNESS_TOPOLOGY", replace(shipped, database_connections=30))
    with pytest.raises(CommandError, match=r"harness\.capacity\.E001"):
        call_command("check", stdout=io.StringIO(), stderr=io.StringIO())


def test_the_system_check_tells_a_kind_without_its_resource(monkeypatch: pytest.MonkeyPatch) -> None:
    shipped: Topology = settings.HARNESS_TOPOLOGY
    without = {name: one for name, one in shipped.resources.items() if name != "db:main"}
    monkeypatch.setattr(settings, "HARNESS_TOPOLOGY", replace(shipped, resources=without, targets={}))
    (found,) = capacity_adds_up()
    assert (found.id, found.level) == ("harness.capacity.E002", checks.ERROR)
    assert "db.report" in found.msg
