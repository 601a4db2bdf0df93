"""A process dies between a step's effect and its record: the effect is repeated under the same token, no other is."""

import os
import signal
import time

import pytest

from tests.recovery.conftest import Ward
from tests.stage import wait_until


def tokens(ward: Ward) -> list[tuple[int, str]]:
    """The effects that were begun, as (number, token)."""
    lines = [line.split() for path in ward.effects.glob("*.tokens") for line in path.read_text().splitlines()]
    return [(int(number), token) for _, number, token in lines]


@pytest.mark.parametrize(
    ("kind", "pool"), [("recovery.steps", "tool_read"), ("recovery.child_steps", "ingest")], ids=["worker", "child"]
)
def test_a_kill_between_effect_and_record_repeats_that_effect_under_its_token_and_no_other(
    ward: Ward, kind: str, pool: str
) -> None:
    stage = ward.stage
    ward.dispatcher()
    worker = ward.worker(pool)
    (task,) = ward.submit(kind, {"effects": 3, "pause_s": 120})
    wait_until(lambda: len(ward.lines("effect")) == 2, within_s=15)
    os.kill(ward.lines("effect")[0].pid, signal.SIGKILL)
    if pool == "tool_read":
        worker.wait()
        ward.pass_the_silence(worker)
        ward.worker(pool)
    wait_until(lambda: stage.state(task) == "succeeded", within_s=30)
    assert [line.number for line in ward.lines("effect")] == [0, 1, 1, 2]
    by_number: dict[int, set[str]] = {}
    for number, token in tokens(ward):
        by_number.setdefault(number, set()).add(token)
    assert [len(found) for found in by_number.values()] == [1, 1, 1]
    assert len(set().union(*by_number.values())) == 3
    began, ended = "step_started", "step_finished"
    assert stage.events(task) == [
        "submit", "claim", began, ended, began, "lose",
        "claim", "steps_replayed", began, ended, began, ended, "succeed",
    ]  # fmt: skip
    assert stage.one("SELECT array_agg(begun ORDER BY ordinal) FROM step WHERE task_id = %s", task) == [1, 2, 1]


def test_a_worker_that_was_stopped_in_a_step_records_nothing_when_it_goes_on(ward: Ward) -> None:
    """Its task was lost and done by another worker meanwhile."""
    stage = ward.stage
    ward.dispatcher()
    stopped = ward.worker("tool_read")
    (task,) = ward.submit("recovery.steps", {"effects": 3, "pause_s": 1})
    wait_until(lambda: len(ward.lines("effect")) == 2, within_s=15)
    ward.stop(stopped)
    ward.pass_the_silence(stopped)
    ward.worker("tool_read")
    wait_until(lambda: stage.state(task) == "succeeded", within_s=30)
    rows = "SELECT array_agg((ordinal, release_no, begun, finished_at)::text ORDER BY ordinal) FROM step"
    before, events = stage.one(rows), stage.events(task)
    gone_on_s = ward.go_on(stopped)
    wait_until(lambda: stopped.poll() is not None, within_s=30)  # its session was ended: it leaves by itself
    assert time.time() > gone_on_s
    assert stage.one(rows) == before and stage.events(task) == events
    assert [line.number for line in ward.lines("effect")] == [0, 1, 1, 2]
