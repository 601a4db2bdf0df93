"""A state changes in one place, fenced, with its trace; the database refuses the rest."""

import threading
import uuid
from itertools import product

import psycopg
import pytest

from harness.policy import verbs
from harness.policy.capacity import OTHER_CONNECTIONS
from harness.policy.lifecycle import LIVE, TERMINAL, Event, State, legal_changes
from harness.policy.verbs import Asked
from harness.store import sessions, transitions
from harness.store.transitions import By, Outcome
from tests.stage import Stage, wait_until
from tests.store.forced import into

ILLEGAL = [(a, b) for a, b in product(State, State) if a != b and (a, b) not in legal_changes()]


def succeed(task: int, release_no: int) -> Outcome:
    return Outcome(task=task, release_no=release_no, event=Event.SUCCEED, slot_s=0.1, output='{"ok": true}')


def test_a_task_goes_from_submit_through_release_and_claim_to_its_result(stage: Stage) -> None:
    session = stage.add_session()
    (task,) = stage.submit()
    (message,) = stage.tick()
    assert message.queue == "db.p2"
    assert (stage.state(task), stage.row(task)["release_no"], stage.row(task)["ready"]) == ("queued", 1, False)
    (claimed,) = stage.claim(message, session)
    assert stage.state(task) == "running"
    settled = transitions.settle(
        stage.connection,
        [succeed(task, claimed.release_no)],
        lease=message.lease,
        token=message.token,
        session=session,
        actor="test",
    )
    assert settled == {task: "succeeded"}
    assert stage.events(task) == ["submit", "claim", "succeed"]
    assert stage.one("SELECT output ->> 'ok' FROM task_body WHERE task_id = %s", task) == "true"
    assert stage.one("SELECT count(*) FROM lease") == 0
    assert stage.one("SELECT count(*) FROM lease_member") == 0
    assert stage.one("SELECT verdict FROM attempt WHERE task_id = %s AND release_no = 1", task) == "succeed"


def test_a_message_is_claimed_once_and_only_with_its_token(stage: Stage) -> None:
    session = stage.add_session()
    stage.submit()
    (message,) = stage.tick()
    wrong = transitions.claim(
        stage.connection, message.lease, message.token + 1, session=session, pid=1, actor="forged"
    )
    assert wrong == []
    assert len(stage.claim(message, session)) == 1
    assert stage.claim(message, session) == []


def test_a_session_that_was_declared_dead_claims_nothing(stage: Stage) -> None:
    session = stage.add_session()
    stage.submit()
    (message,) = stage.tick()
    sessions.end(stage.connection, session)
    assert stage.claim(message, session) == []


def test_two_workers_racing_for_one_message_run_it_once(stage: Stage) -> None:
    session = stage.add_session()
    stage.submit(n=20)
    for message in [*stage.tick(), *stage.tick()]:
        won: list[int] = []
        start = threading.Barrier(2)

        def race(m: object = message, won: list[int] = won, start: threading.Barrier = start) -> None:
            with stage.open() as connection:
                start.wait()
                won.append(
                    len(transitions.claim(connection, m.lease, m.token, session=session, pid=1, actor="race"))  # type: ignore[attr-defined]
                )

        threads = [threading.Thread(target=race) for _ in range(2)]
        [thread.start() for thread in threads]  # type: ignore[func-returns-value]
        [thread.join() for thread in threads]  # type: ignore[func-returns-value]
        assert sorted(won) == [0, 1]


def test_a_stale_worker_cannot_settle_its_successors_attempt(stage: Stage) -> None:
    old, new = stage.add_session(), stage.add_session()
    (task,) = stage.submit()
    (first,) = stage.tick()
    (claimed,) = stage.claim(first, old)
    stage.forget_beats(old)
    sessions.end_dead(stage.connection)
    transitions.lose(stage.connection, max_attempts={}, retry_delay_s=0, actor="sweep")
    (second,) = stage.tick()
    (again,) = stage.claim(second, new)
    assert again.release_no == claimed.release_no + 1
    stale = transitions.settle(
        stage.connection,
        [succeed(task, claimed.release_no)],
        lease=first.lease,
        token=first.token,
        session=old,
        actor="stale",
    )
    assert stale == {}
    forged = transitions.settle(
        stage.connection,
        [succeed(task, claimed.release_no)],
        lease=second.lease,
        token=second.token,
        session=new,
        actor="stale release",
    )
    assert forged == {}
    assert stage.state(task) == "running"


@pytest.mark.parametrize(("source", "target"), ILLEGAL)
def test_the_database_refuses_a_change_that_the_table_does_not_have(stage: Stage, source: State, target: State) -> None:
    (task,) = stage.submit()
    into(stage, task, source)
    finished = "coalesce(finished_at, clock_timestamp())" if target in TERMINAL else "NULL"
    with pytest.raises(psycopg.errors.CheckViolation, match="lifecycle"):
        stage.connection.execute(
            f"UPDATE task SET state = %s, ready = false, finished_at = {finished} WHERE id = %s",
            (target, task),
        )


def test_the_database_refuses_birth_in_another_state_a_release_going_back_and_the_death_of_a_live_task(
    stage: Stage,
) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match="begins as queued"):
        stage.connection.execute(
            "INSERT INTO task (tenant_id, kind, version, pool, priority, state, ready) "
            "VALUES (1, 'x', 1, 'db', 2, 'running', false)"
        )
    stage.add_session()
    (task,) = stage.submit()
    stage.tick()
    with pytest.raises(psycopg.errors.CheckViolation, match="lifecycle"):
        stage.connection.execute("UPDATE task SET release_no = 0 WHERE id = %s", (task,))
    for state in LIVE:
        into(stage, task, state)
        with pytest.raises(psycopg.errors.CheckViolation, match="live task"):
            stage.connection.execute("DELETE FROM task WHERE id = %s", (task,))


def test_a_queued_task_is_cancelled_at_once_and_its_lease_goes_with_it(stage: Stage) -> None:
    session = stage.add_session()
    waiting, released = stage.submit()[0], None
    (message,) = stage.tick()
    released = waiting
    assert transitions.cancel(stage.connection, released, actor="tenant") == "cancelled"
    assert stage.one("SELECT count(*) FROM lease") == 0
    assert stage.claim(message, session) == []
    assert stage.state(released) == "cancelled"
    assert transitions.cancel(stage.connection, released, actor="tenant") == "already"


def test_a_cancel_of_one_bundle_member_leaves_the_others(stage: Stage) -> None:
    session = stage.add_session({"db": 1})
    tasks = stage.submit("noop", n=5)
    (message,) = stage.tick()
    assert transitions.cancel(stage.connection, tasks[2], actor="tenant") == "cancelled"
    claimed = stage.claim(message, session)
    assert [one.id for one in claimed] == [*tasks[:2], *tasks[3:]]


@pytest.mark.parametrize("backs_off", [False, True])
def test_a_claim_leaves_a_task_alone_that_left_its_lease_while_the_claim_waited(stage: Stage, backs_off: bool) -> None:
    """It was paused and resumed meanwhile: back in line (or waiting for its time) under the release_no that it had."""
    session = stage.add_session({"db": 1})
    tasks = stage.submit("noop", n=3)
    (message,) = stage.tick()
    claimed: list[int] = []
    with stage.open() as worker, stage.open() as people:

        def claim() -> None:
            found = transitions.claim(worker, message.lease, message.token, session=session, pid=1, actor="test worker")
            claimed.extend(one.id for one in found)

        thread = threading.Thread(target=claim)
        with people.transaction():
            people.execute("SELECT FROM lease FOR UPDATE")
            thread.start()
            waits = "SELECT count(*) > 0 FROM pg_locks WHERE pid = %s AND NOT granted"
            wait_until(lambda: stage.one(waits, worker.info.backend_pid), within_s=10)
            for verb in (verbs.pause, verbs.resume):
                done = transitions.act(people, [tasks[1]], verb, Asked(hold="operator"), By(actor="test"))
                assert done[tasks[1]].outcome in ("paused", "resumed")
            if backs_off:
                people.execute(
                    "UPDATE task SET ready = false, not_before = now() + interval '1 hour' WHERE id = %s", (tasks[1],)
                )
        thread.join(10)
    assert claimed == [tasks[0], tasks[2]]
    assert stage.state(tasks[1]) == "queued"
    assert stage.one("SELECT count(*) FROM lease_member WHERE task_id = %s", tasks[1]) == 0


def test_a_running_task_is_wished_to_stop_and_its_next_exit_obeys(stage: Stage) -> None:
    session = stage.add_session()
    (task,) = stage.submit()
    (message,) = stage.tick()
    (claimed,) = stage.claim(message, session)
    assert transitions.cancel(stage.connection, task, actor="tenant", reason="not needed") == "wished"
    assert transitions.cancel(stage.connection, task, actor="tenant") == "already"
    assert sessions.wishes(stage.connection, [task]) == {task: "cancel"}
    failed = Outcome(
        task=task, release_no=claimed.release_no, event=Event.FAIL, slot_s=0.1, delay_s=1.0, spends=1, error_class="bug"
    )
    settled = transitions.settle(
        stage.connection, [failed], lease=message.lease, token=message.token, session=session, actor="worker"
    )
    assert settled == {task: "cancelled"}
    assert stage.events(task)[-1] == "abort"
    assert transitions.cancel(stage.connection, stage.submit()[0], actor="tenant") == "cancelled"


def test_cancelling_while_it_is_released_and_claimed_ends_in_one_of_two_clean_ways(stage: Stage) -> None:
    session = stage.add_session()
    for _ in range(15):
        (task,) = stage.submit()
        start = threading.Barrier(2)
        answers: list[str] = []

        def cancel(task: int = task, start: threading.Barrier = start, answers: list[str] = answers) -> None:
            with stage.open("engine") as connection:
                start.wait()
                answers.append(transitions.cancel(connection, task, actor="tenant"))

        thread = threading.Thread(target=cancel)
        thread.start()
        start.wait()
        claimed = [one for message in list(stage.tick()) for one in stage.claim(message, session)]
        thread.join()
        if answers == ["cancelled"]:
            assert (stage.state(task), claimed) == ("cancelled", [])
        else:
            assert answers == ["wished"]
            assert (stage.state(task), stage.row(task)["want"]) == ("running", "cancel")
        assert stage.one("SELECT count(*) FROM lease_member WHERE task_id = %s", task) == len(claimed)


def test_a_loss_charges_a_single_release_and_nobody_of_a_bundle(stage: Stage) -> None:
    session = stage.add_session({"db": 1})
    (alone,) = stage.submit()
    (message,) = stage.tick()
    stage.claim(message, session)
    stage.forget_beats(session)
    sessions.end_dead(stage.connection)
    transitions.lose(stage.connection, max_attempts={}, retry_delay_s=0, actor="sweep")
    assert (stage.row(alone)["lost_starts"], stage.row(alone)["attempts_used"], stage.state(alone)) == (1, 0, "queued")
    transitions.cancel(stage.connection, alone, actor="test")

    session = stage.add_session({"db": 1})
    bundle = stage.submit("noop", n=5)
    (message,) = stage.tick()
    assert len(stage.claim(message, session)) == 5
    stage.forget_beats(session)
    sessions.end_dead(stage.connection)
    transitions.lose(stage.connection, max_attempts={}, retry_delay_s=0, actor="sweep")
    assert {stage.row(task)["lost_starts"] for task in bundle} == {0}
    assert {stage.row(task)["single"] for task in bundle} == {True}
    stage.add_session({"db": 1})
    assert stage.one("SELECT count(*) FROM lease") == 0
    stage.tick()
    assert stage.one("SELECT max(n) FROM lease") == 1


def test_a_dead_childs_task_is_taken_back_and_a_live_ones_is_not(stage: Stage) -> None:
    session = stage.add_session()
    dead, alive = stage.submit(n=2)
    for pid, message in zip((101, 202), list(stage.tick()), strict=True):
        stage.claim(message, session, pid=pid)
    lost = transitions.lose(
        stage.connection, session=session, dead_pids=[101], max_attempts={}, retry_delay_s=0, actor="worker"
    )
    assert [(one.task, one.release_no) for one in lost] == [(dead, 1)]
    assert (stage.state(dead), stage.state(alive)) == ("queued", "running")


def test_an_unclaimed_release_goes_back_and_costs_nothing(stage: Stage) -> None:
    stage.add_session()
    (task,) = stage.submit()
    stage.tick()
    assert transitions.hand_back_unclaimed(stage.connection, older_than_s=60) == 0
    assert transitions.hand_back_unclaimed(stage.connection, older_than_s=0) == 1
    row = stage.row(task)
    assert (row["ready"], row["attempts_used"], row["lost_starts"], row["release_no"]) == (True, 0, 0, 1)
    assert len(stage.tick()) == 1


def test_a_deposed_leader_commits_no_plan(stage: Stage) -> None:
    stage.add_session()
    (task,) = stage.submit()
    stage.connection.execute("UPDATE leader SET epoch = epoch + 1")
    assert stage.tick() == []
    assert stage.one("SELECT count(*) FROM lease") == 0
    assert stage.row(task)["ready"] is True


def test_due_tasks_ripen_and_late_ones_expire(stage: Stage) -> None:
    from datetime import UTC, datetime, timedelta

    now = datetime.now(UTC)
    (later,) = stage.submit(not_before=now + timedelta(hours=1))
    (late,) = stage.submit(start_by=now - timedelta(seconds=1))
    stage.add_session()
    assert transitions.expire_due(stage.connection, actor="sweep") == 1
    assert stage.state(late) == "failed_terminal"
    assert stage.tick() == []
    assert transitions.wake_due(stage.connection, actor="sweep") == 0
    stage.connection.execute("UPDATE task SET not_before = clock_timestamp() WHERE id = %s", (later,))
    assert transitions.wake_due(stage.connection, actor="sweep") == 1
    assert stage.events(later) == ["submit", "ripen"]
    assert len(stage.tick()) == 1


def test_a_claim_does_not_start_dead_work(stage: Stage) -> None:
    session = stage.add_session()
    (task,) = stage.submit()
    (message,) = stage.tick()
    stage.connection.execute("UPDATE task SET start_by = clock_timestamp() - interval '1 s' WHERE id = %s", (task,))
    (claimed,) = stage.claim(message, session)
    assert claimed.expired
    assert (stage.state(task), stage.events(task)) == ("failed_terminal", ["submit", "expire"])
    told = stage.one("SELECT error FROM task_body WHERE task_id = %s", task)
    assert told == {"class": "expired", "message": "expired before it could start"}


def test_a_settle_of_part_of_a_bundle_leaves_the_lease_and_the_last_takes_it(stage: Stage) -> None:
    session = stage.add_session({"db": 1})
    stage.submit("noop", n=3)
    (message,) = stage.tick()
    claimed = stage.claim(message, session)
    for n, one in enumerate(claimed, start=1):
        transitions.settle(
            stage.connection,
            [succeed(one.id, one.release_no)],
            lease=message.lease,
            token=message.token,
            session=session,
            actor="w",
        )
        assert stage.one("SELECT count(*) FROM lease") == (0 if n == 3 else 1)
    assert stage.one("SELECT sum(n) FROM charge") == 3


def test_the_budget_of_connections_is_counted_over_all_sessions(stage: Stage) -> None:
    from harness.policy.errors import Refused

    def register(connections: int) -> str:
        return sessions.register(
            stage.connection,
            session=uuid.uuid4(),
            host="h",
            pid=1,
            pools={"db": 1},
            kinds=[],
            connections=connections,
            budget=OTHER_CONNECTIONS + 10,
        )

    assert "10" in register(6)
    with pytest.raises(Refused, match=r"12 > 10.*resources\.toml"):
        register(6)
    register(4)
