"""Threads that can't be stopped: what they cost, and when their process gives up."""

from pathlib import Path

from harness.ops.local import supervision
from harness.ops.local.places import open_places
from harness.ops.local.stack import Stack
from tests.recovery.conftest import Ward
from tests.stage import wait_until

STUCK_S = 600
FOR_LONG = {"pause_s": 120}


def zombies(ward: Ward) -> int:
    return int(ward.stage.one("SELECT count(*) FROM lease WHERE zombie_since IS NOT NULL"))


def test_a_stuck_thread_keeps_its_slot_and_when_that_lasts_too_long_the_process_hands_the_rest_back_and_ends(
    ward: Ward,
) -> None:
    stage = ward.stage
    ward.environment["HARNESS_ZOMBIE_MAX_AGE_S"] = "3"
    ward.dispatcher()
    worker = ward.worker("tool_read")
    (stuck,) = ward.submit("recovery.stuck", {"i": 0, "pause_s": STUCK_S})
    others = ward.submit("recovery.patient", *[{"i": i} | FOR_LONG for i in range(1, 8)])
    wait_until(lambda: len(ward.lines("begun")) == 8, within_s=15)
    (waiting,) = ward.submit("recovery.patient", {"i": 8} | FOR_LONG)
    wait_until(lambda: zombies(ward) == 1, within_s=10)
    assert stage.events(stuck)[:3] == ["submit", "claim", "fail"]
    assert stage.row(stuck)["attempts_used"] == 1
    assert (ward.count("running"), stage.one("SELECT count(*) FROM lease")) == (7, 8)

    assert worker.wait(15) == 1
    assert "threads_stuck" in ward.text(worker)
    for task in others:
        assert stage.events(task) == ["submit", "claim", "interrupt"]
        assert (stage.row(task)["lost_starts"], stage.row(task)["attempts_used"]) == (0, 0)
    assert stage.events(waiting) == ["submit"]
    wait_until(lambda: stage.one("SELECT count(*) FROM lease") == 0, within_s=5)


def test_a_stuck_thread_that_returns_gives_its_slot_back(ward: Ward) -> None:
    ward.dispatcher()
    ward.worker("tool_read")
    ward.submit("recovery.stuck", {"i": 0, "pause_s": 8})
    ward.submit("recovery.patient", *[{"i": i} | FOR_LONG for i in range(1, 8)])
    wait_until(lambda: len(ward.lines("begun")) == 8, within_s=15)
    ward.submit("recovery.patient", {"i": 8} | FOR_LONG)
    wait_until(lambda: zombies(ward) == 1, within_s=10)
    wait_until(lambda: ward.lines("ended", 0), within_s=10)
    wait_until(lambda: len(ward.lines("begun")) == 9, within_s=2)
    assert zombies(ward) == 0


def test_with_a_quarter_of_its_threads_stuck_a_worker_gives_up_and_comes_back_by_itself(
    ward: Ward, root: Path, tmp_path: Path
) -> None:
    stage = ward.stage
    command = "celery -A config worker --resource-pool tool_read -n read@%h"
    stack = Stack(
        root,
        home=tmp_path / "stack",
        programs=["dispatcher"],
        extra={"worker_read": command},
        environment=ward.environment,
    )
    stack.settle_s = 1
    with stack:
        stack.start()
        here = open_places(tmp_path / "stack")

        def pid() -> int:
            return next(one.pid for one in supervision.ask(here) if one.name == "worker_read")

        first = pid()
        stuck = ward.submit("recovery.stuck", *[{"i": i, "pause_s": STUCK_S} for i in range(2)])
        (innocent,) = ward.submit("recovery.patient", {"i": 2} | FOR_LONG)
        wait_until(lambda: len(ward.lines("begun", 2)) == 2, within_s=30)
        assert pid() not in (0, first)
        assert stage.events(innocent) == ["submit", "claim", "interrupt", "claim"]
        assert stage.row(innocent)["lost_starts"] == 0
        assert {stage.row(task)["attempts_used"] for task in stuck} == {1}


def test_a_worker_frozen_by_a_call_that_keeps_the_interpreter_ends_by_itself_and_says_where_it_stood(
    ward: Ward,
) -> None:
    ward.dispatcher()
    worker = ward.worker("tool_read")
    (task,) = ward.submit("recovery.frozen", {"i": 0})
    wait_until(lambda: len(ward.lines("begun")) == 1, within_s=15)
    assert worker.wait(45) == 1
    assert "Timeout (0:00:30)!" in ward.text(worker) and "in frozen" in ward.text(worker)
    assert ward.stage.events(task)[:3] == ["submit", "claim", "lose"]
    assert ward.stage.row(task)["lost_starts"] == 1
