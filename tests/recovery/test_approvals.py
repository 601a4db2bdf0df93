"""Workers die while a question waits, and after it was answered: it is asked once, and the answer stays the same."""

import os
import signal
import uuid

from harness.engine import approve
from tests.recovery.conftest import Ward
from tests.stage import wait_until


def test_a_question_and_its_answer_outlive_the_workers(ward: Ward) -> None:
    stage = ward.stage
    ward.dispatcher()
    worker = ward.worker("tool_read")
    (task,) = ward.submit("recovery.asking", {"pause_s": 120})
    wait_until(lambda: stage.state(task) == "waiting_approval", within_s=30)
    assert stage.one("SELECT count(*) FROM lease") == 0
    worker.kill()  # nothing of the question is in it
    worker.wait()
    ward.pass_the_silence(worker)
    public = uuid.UUID(str(stage.one("SELECT public_id FROM task WHERE id = %s", task)))
    approve.approve(stage.connection, public, choice="left", tenant=stage.tenant, actor="jo")
    second = ward.worker("tool_read")
    wait_until(lambda: len(ward.lines("effect")) == 2, within_s=30)
    os.kill(ward.lines("effect")[1].pid, signal.SIGKILL)  # it had the answer, and was past it
    second.wait()
    ward.pass_the_silence(second)
    ward.worker("tool_read")
    wait_until(lambda: stage.state(task) == "succeeded", within_s=30)
    assert len(ward.lines("left")) == 2 and ward.lines("right") == []
    assert [line.number for line in ward.lines("effect")] == [0, 1, 1]  # nothing before the question again
    assert stage.one("SELECT output FROM task_body WHERE task_id = %s", task) == "left"
    began, ended = "step_started", "step_finished"
    assert stage.events(task) == [
        "submit", "claim", began, ended, began, "ask", "approve",
        "claim", "steps_replayed", began, ended, began, "lose",
        "claim", "steps_replayed", began, ended, "succeed",
    ]  # fmt: skip
