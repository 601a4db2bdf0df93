"""A process dies under its tasks: who takes them back, and how soon they run again."""

import os
import signal
import time

import redis

from tests.recovery.conftest import Ward
from tests.stage import wait_until

CHILD_S = 2.0  # a dead child's task is settled by its parent
CHILD_AGAIN_S = 3.0  # and runs again
WORKER_AGAIN_S = 30.0  # a killed worker's tasks run again, with default settings
GONE_AGAIN_S = 15.0  # sooner than silence alone would tell: its machine knows that it is gone
UNCLAIMED_S = 10.0


def test_a_killed_childs_task_is_settled_by_its_parent_and_runs_again(ward: Ward) -> None:
    ward.dispatcher()
    ward.worker("ingest")
    (task,) = ward.submit("recovery.child", {"pause_s": 60})
    wait_until(lambda: ward.lines("effect"), within_s=15)
    os.kill(ward.lines("effect")[0].pid, signal.SIGKILL)
    killed_s = time.time()
    wait_until(lambda: "lose" in ward.stage.events(task), within_s=10)
    assert time.time() - killed_s < CHILD_S
    wait_until(lambda: len(ward.lines("begun")) == 2, within_s=10)
    assert ward.lines("begun")[1].at_s - killed_s < CHILD_AGAIN_S
    assert (ward.stage.row(task)["lost_starts"], ward.stage.row(task)["attempts_used"]) == (1, 0)


def test_a_killed_workers_tasks_run_again_within_thirty_seconds(ward: Ward) -> None:
    ward.dispatcher()
    workers = ward.workers("tool_read", "ingest")
    tasks = ward.submit("recovery.thread", *[{"i": i, "pause_s": 2} for i in range(8)])
    (in_a_child,) = ward.submit("recovery.child", {"i": 8, "pause_s": 60})
    wait_until(lambda: len(ward.lines("begun")) == 9, within_s=15)
    for worker in workers:
        worker.kill()
        worker.wait()
    killed_s = time.time()
    ward.workers("tool_read", "ingest")
    wait_until(lambda: ward.count("succeeded") == 8, within_s=GONE_AGAIN_S + 5)
    for i, task in enumerate(tasks):
        first, second = ward.lines("begun", i)
        assert first.at_s < killed_s < second.at_s < killed_s + GONE_AGAIN_S
        assert ward.stage.events(task) == ["submit", "claim", "lose", "claim", "succeed"]
        assert (ward.stage.row(task)["lost_starts"], ward.stage.row(task)["attempts_used"]) == (1, 0)
    assert len(ward.lines("begun", 8)) == 1, "a child outlives its parent: its session isn't ended before its silence"
    wait_until(lambda: len(ward.lines("begun", 8)) == 2, within_s=WORKER_AGAIN_S)
    assert ward.lines("begun", 8)[1].at_s < killed_s + WORKER_AGAIN_S
    assert ward.stage.events(in_a_child) == ["submit", "claim", "lose", "claim"]


def test_a_release_that_nobody_claims_comes_back_after_ten_seconds_and_costs_nothing(ward: Ward) -> None:
    stage = ward.stage
    stage.add_session({"tool_read": 1})  # slots, but nobody behind them
    ward.dispatcher()
    (task,) = ward.submit("recovery.thread", {})
    wait_until(lambda: stage.one("SELECT count(*) FROM lease") == 1, within_s=15)
    released_s = time.monotonic()
    with redis.Redis.from_url(ward.environment["BROKER_URL"]) as client:
        client.flushdb()
        wait_until(lambda: stage.row(task)["release_no"] == 2, within_s=UNCLAIMED_S + 5)
        assert UNCLAIMED_S - 1 < time.monotonic() - released_s < UNCLAIMED_S + 3
        # The message of the first release may be among those that wait now: it is nobody's work.
        wait_until(lambda: client.llen("tool_read.p2"), within_s=5)
    ward.worker("tool_read")
    wait_until(lambda: stage.state(task) == "succeeded", within_s=15)
    assert stage.events(task) == ["submit", "claim", "succeed"]
    assert (stage.row(task)["lost_starts"], stage.row(task)["attempts_used"]) == (0, 0)
