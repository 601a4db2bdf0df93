"""SIGTERM: what runs ends in time or goes back in line, and pays nothing for it."""

import os
import signal

import psutil

from tests.recovery.conftest import Ward
from tests.stage import wait_until

LONG = {"pause_s": 120}


def test_workers_that_are_told_to_end_hand_back_what_does_not_end_and_spend_nothing(ward: Ward) -> None:
    """The work is deaf: nothing but the end of its process stops it."""
    stage = ward.stage
    ward.dispatcher()
    pools = ("tool_read", "ingest")
    workers = ward.workers(*pools)
    tasks = [ward.submit(kind, {"i": i} | LONG)[0] for i, kind in enumerate(["recovery.thread", "recovery.child"] * 2)]
    wait_until(lambda: len(ward.lines("effect")) == 4, within_s=15)
    for worker in workers:
        worker.terminate()
    assert [worker.wait(10) for worker in workers] == [0, 0]
    for task in tasks:
        assert stage.events(task) == ["submit", "claim", "interrupt"]
        assert (stage.row(task)["lost_starts"], stage.row(task)["attempts_used"]) == (0, 0)
    assert stage.one("SELECT count(*) FROM lease") == 0
    ward.workers(*pools)
    wait_until(lambda: len(ward.lines("begun")) == 8, within_s=15)


def test_a_signal_to_the_whole_group_costs_no_child_its_task(ward: Ward) -> None:
    """As systemd, honcho and a terminal send it: to the children too."""
    stage = ward.stage
    ward.dispatcher()
    worker = ward.worker("ingest")
    ended, long = ward.submit("recovery.child", {"i": 0, "pause_s": 0.5}, {"i": 1} | LONG)
    wait_until(lambda: len(ward.lines("effect")) == 2, within_s=15)
    for process in [*psutil.Process(worker.pid).children(recursive=True), psutil.Process(worker.pid)]:
        os.kill(process.pid, signal.SIGTERM)
    assert worker.wait(10) == 0
    assert stage.events(ended) == ["submit", "claim", "succeed"]
    assert stage.events(long) == ["submit", "claim", "interrupt"]
    assert stage.row(long)["lost_starts"] == 0
