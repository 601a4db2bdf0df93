"""Another priority for waiting work: another flow, never under a lease."""

import threading
import uuid

import pytest

from harness.engine import operate
from harness.engine.operate import batches
from harness.policy import verbs
from harness.policy.admission import Forbidden
from harness.policy.errors import Conflict, Invalid, NotFound
from harness.store import transitions
from harness.store.backlog import insert_run
from tests.flows import orphans
from tests.stage import Stage


def public(stage: Stage, task: int) -> uuid.UUID:
    found: uuid.UUID = stage.one("SELECT public_id FROM task WHERE id = %s", task)
    return found


def change(stage: Stage, task: int, priority: int, reason: str = "") -> str:
    return operate.priority(
        stage.connection, public(stage, task), priority=priority, tenant=None, actor="operator", reason=reason
    ).outcome


def test_a_raised_task_overtakes_and_its_trace_says_why(stage: Stage) -> None:
    stage.add_session({"db": 1})
    first, second = stage.submit(priority=3, n=2)
    assert change(stage, second, 0, "a customer waits") == "reprioritised"
    assert orphans(stage) == 0
    (message,) = stage.tick()
    assert message.queue == "db.p0" and stage.row(second)["ready"] is False and stage.row(first)["ready"] is True
    assert stage.events(second) == ["submit", "reprioritise"]
    data = stage.one("SELECT data FROM event WHERE task_id = %s AND event = 'reprioritise'", second)
    assert data == {"from": 3, "to": 0, "reason": "a customer waits"}


def test_the_same_priority_again_changes_nothing(stage: Stage) -> None:
    (task,) = stage.submit(priority=2)
    assert change(stage, task, 2) == "already"
    assert stage.events(task) == ["submit"]


def test_a_task_for_later_changes_and_ripens_into_its_new_flow(stage: Stage) -> None:
    stage.add_session()
    (task,) = stage.submit(priority=3)
    stage.connection.execute(
        "UPDATE task SET ready = false, not_before = clock_timestamp() + interval '1 hour' WHERE id = %s", (task,)
    )
    assert change(stage, task, 1) == "reprioritised"
    assert stage.one("SELECT count(*) FROM flow WHERE priority = 1") == 0
    stage.connection.execute("UPDATE task SET not_before = clock_timestamp() WHERE id = %s", (task,))
    transitions.wake_due(stage.connection, actor="test")
    assert [message.queue for message in stage.tick()] == ["db.p1"]


def test_a_released_a_running_and_an_ended_task_refuse(stage: Stage) -> None:
    session = stage.add_session()
    (task,) = stage.submit()
    (message,) = stage.tick()
    with pytest.raises(Conflict, match="released"):
        change(stage, task, 1)
    stage.claim(message, session)
    with pytest.raises(Conflict, match="running"):
        change(stage, task, 1)
    (other,) = stage.submit()
    transitions.cancel(stage.connection, other, actor="test")
    with pytest.raises(Conflict, match="cancelled"):
        change(stage, other, 1)
    assert [stage.row(one)["priority"] for one in (task, other)] == [2, 2]


def test_nobody_goes_above_the_tenants_top_priority_or_touches_anothers_task(stage: Stage) -> None:
    (task,) = stage.submit()
    tenant, other = stage.tenant, stage.add_tenant("other")
    with stage.open("web") as web:
        with pytest.raises(Forbidden) as raised:
            operate.priority(web, public(stage, task), priority=0, tenant=tenant, actor="key")
        assert raised.value.field == "priority"
        with pytest.raises(NotFound):
            operate.priority(web, public(stage, task), priority=1, tenant=other, actor="key")
        with pytest.raises(Invalid):
            operate.priority(web, public(stage, task), priority=4, tenant=tenant, actor="key")
        assert (
            operate.priority(web, public(stage, task), priority=1, tenant=tenant, actor="key").outcome
            == "reprioritised"
        )


def test_a_run_changes_what_waits_in_batches_and_counts_what_stays(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "BATCH", 7)
    session = stage.add_session({"db": 2})
    run_id = uuid.uuid4()
    run = insert_run(stage.connection, public_id=run_id, tenant=stage.tenant, name="", size=30, fanout_cap=None)
    stage.submit(n=29, run=run)
    stage.submit(run=run, priority=1)  # has it already; it is released first, too
    released = stage.tick()
    stage.claim(released[0], session)
    held = "SELECT count(*) FROM lease_member m JOIN task t ON t.id = m.task_id WHERE t.priority <> 1"
    where = operate.Filter(run=run_id)
    done = operate.bulk(stage.connection, "priority", where, priority=1, tenant=None, actor="operator")
    assert 0 < done.refused.total() == stage.one(held) and done.done["reprioritised"] + done.refused.total() == 29
    assert (done.matched, done.already, done.next) == (30, 1, None)
    assert stage.one("SELECT count(*) FROM task WHERE ready AND priority <> 1") == 0
    assert orphans(stage) == 0
    with pytest.raises(NotFound):
        operate.bulk(
            stage.connection, "priority", operate.Filter(run=uuid.uuid4()), priority=1, tenant=None, actor="operator"
        )


def test_a_change_racing_with_a_release_ends_in_one_of_two_clean_ways(stage: Stage) -> None:
    session = stage.add_session()
    outcomes: list[str] = []
    for _ in range(25):
        (task,) = stage.submit(priority=3)
        public_id = public(stage, task)
        start = threading.Barrier(2)
        answers: list[str] = []

        def change(
            public_id: uuid.UUID = public_id, start: threading.Barrier = start, answers: list[str] = answers
        ) -> None:
            with stage.open() as connection:
                start.wait()
                try:
                    done = operate.priority(connection, public_id, priority=1, tenant=None, actor="operator")
                    answers.append(done.outcome)
                except Conflict:
                    answers.append("conflict")

        thread = threading.Thread(target=change)
        thread.start()
        start.wait()
        messages = list(stage.tick())
        thread.join()
        row = stage.row(task)
        if answers == ["conflict"]:
            assert row["priority"] == 3 and len(messages) == 1
        else:
            assert answers == ["reprioritised"] and row["priority"] == 1
        outcomes += answers
        if not messages:
            # The release passed over the locked task, and may have found its new flow empty before the change was
            # committed: the leader looks again at what it deleted.
            stage.memory.deleted = [(0.0, looked, key) for _, looked, key in stage.memory.deleted]
            messages = list(stage.tick()) or list(stage.tick())
        assert orphans(stage) == 0
        assert len(messages) == 1
        for message in messages:
            assert len(stage.claim(message, session)) == 1
            stage.connection.execute("DELETE FROM lease_member")
            stage.connection.execute("DELETE FROM lease")
    assert stage.one("SELECT count(*) FROM task WHERE state = 'running'") == 25


def test_a_change_that_waited_for_a_release_sees_its_lease(stage: Stage) -> None:
    """The look at the lease comes after the lock: a look before it would miss a release that was under way."""
    stage.add_session()
    (task,) = stage.submit()
    done: list[str] = []
    with stage.open() as releasing:
        with releasing.transaction():
            releasing.execute("SELECT FROM task WHERE id = %s FOR UPDATE", (task,))

            def change() -> None:
                with stage.open() as connection:
                    asked, by = verbs.Asked(priority=0), transitions.By(actor="operator")
                    done.append(transitions.act(connection, [task], verbs.priority, asked, by)[task].outcome)

            thread = threading.Thread(target=change)
            thread.start()
            waits = "SELECT count(*) FROM pg_locks WHERE NOT granted"
            while not stage.one(waits):
                thread.join(0.005)
            releasing.execute("UPDATE task SET ready = false, release_no = release_no + 1 WHERE id = %s", (task,))
            releasing.execute(
                "INSERT INTO lease_member (task_id, tenant_id, lease_id, release_no, ordinal) VALUES (%s, %s, 1, 1, 1)",
                (task, stage.tenant),
            )
        thread.join()
    assert done == ["refused"] and stage.row(task)["priority"] == 2
