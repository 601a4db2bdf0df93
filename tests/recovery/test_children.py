"""A worker dies between a spawn and its gather: each child is made once, and the parent goes on with them."""

import os
import signal

from tests.recovery.conftest import Ward
from tests.stage import wait_until


def test_a_kill_between_spawn_and_gather_makes_no_child_twice_and_loses_none(ward: Ward) -> None:
    stage = ward.stage
    ward.dispatcher()
    worker = ward.worker("tool_read")
    (task,) = ward.submit("recovery.parent", {"i": 1, "children": 3, "pause_s": 120})
    wait_until(lambda: ward.lines("effect", 1), within_s=30)
    os.kill(ward.lines("effect", 1)[0].pid, signal.SIGKILL)
    worker.wait()
    ward.pass_the_silence(worker)
    ward.worker("tool_read")
    wait_until(lambda: stage.state(task) == "succeeded", within_s=60)
    assert stage.one("SELECT output FROM task_body WHERE task_id = %s", task) == 3
    assert stage.one("SELECT count(*) FROM task WHERE parent_id = %s", task) == 3
    assert [len(ward.lines("ended", 100 + n)) for n in range(3)] == [1, 1, 1]
    assert stage.one("SELECT begun FROM step WHERE task_id = %s AND ordinal = 1", task) == 1
