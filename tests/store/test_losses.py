"""Who is blamed when a worker or a child dies, and what a worker that lost its task may still commit."""

import uuid

import pytest

from harness.policy.lifecycle import Event
from harness.store import sessions, transitions
from harness.store.transitions import Outcome
from tests.stage import Stage


def lose_worker(stage: Stage, queue: str) -> uuid.UUID:
    """Release the one task to this queue, claim it, and lose the whole worker."""
    session = stage.add_session()
    (message,) = stage.tick()
    assert message.queue == queue
    stage.claim(message, session)
    stage.forget_beats(session)
    sessions.end_dead(stage.connection)
    transitions.lose(stage.connection, max_attempts={}, retry_delay_s=0, actor="sweep")
    return session


def test_the_loss_of_its_process_in_quarantine_buries_a_task(stage: Stage) -> None:
    (task,) = stage.submit("noop.fault", input='{"fail": "exit"}')
    for _ in range(2):
        lose_worker(stage, "tool_read.p2")
    session = stage.add_session()
    (message,) = stage.tick()
    assert message.queue == "quarantine.p2"
    stage.claim(message, session, pid=101)
    transitions.lose(
        stage.connection, session=session, dead_pids=[101], max_attempts={}, retry_delay_s=0, actor="worker"
    )
    assert stage.events(task)[-1] == "bury"
    assert stage.one("SELECT error ->> 'class' FROM task_body WHERE task_id = %s", task) == "lost"
    assert "quarantine" in stage.one("SELECT error ->> 'message' FROM task_body WHERE task_id = %s", task)


def test_the_loss_of_the_whole_quarantine_worker_buries_only_the_second_time(stage: Stage) -> None:
    (task,) = stage.submit("noop.fault", input='{"fail": "exit"}')
    for queue, state in (
        *[("tool_read.p2", "queued")] * 2,
        ("quarantine.p2", "queued"),
        ("quarantine.p2", "failed_terminal"),
    ):
        lose_worker(stage, queue)
        assert stage.state(task) == state
    assert stage.row(task)["lost_starts"] == 4


@pytest.mark.parametrize("how", ["lost", "settled from outside"])
def test_a_transaction_of_a_task_that_was_taken_from_its_worker_does_not_hold(stage: Stage, how: str) -> None:
    session = stage.add_session()
    (task,) = stage.submit()
    (message,) = stage.tick()
    (claimed,) = stage.claim(message, session)
    mine = {"lease": message.lease, "token": message.token, "task": task, "release_no": claimed.release_no}
    with stage.open() as worker, worker.transaction():
        assert sessions.hold(worker, session, **mine)
        stage.forget_beats(session)
        sessions.end_dead(stage.connection)
        assert transitions.lose(stage.connection, max_attempts={}, retry_delay_s=0, actor="sweep") == []
    if how == "lost":
        transitions.lose(stage.connection, max_attempts={}, retry_delay_s=0, actor="sweep")
    else:
        late = Outcome(task=task, release_no=claimed.release_no, event=Event.FAIL, slot_s=1.0, delay_s=1.0, spends=1)
        transitions.settle(
            stage.connection,
            [late],
            lease=message.lease,
            token=message.token,
            session=session,
            actor="worker",
            keep_lease=True,
        )
    assert not sessions.hold(stage.connection, session, **mine)
