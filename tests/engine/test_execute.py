"""Whatever a kind does, its task ends in a clear state with the reason in the trace."""

import os
import threading
import time
import uuid

import psycopg
import pytest
from pydantic import BaseModel

from harness.engine import execute, watch
from harness.engine.process import Fence, LeaseLost
from harness.kinds import Context, Permanent, RateLimited, kind, registry
from harness.policy.lifecycle import Event
from harness.store import sessions, transitions
from harness.store.database import borrowed
from harness.store.transitions import Ended, Outcome
from tests.stage import Stage, wait_until


class Nothing(BaseModel):
    """No input."""


class Odd(BaseModel):
    """An input with one field."""

    n: int


@kind("test.raise", pool="db", input=Nothing)
def raises(ctx: Context, payload: Nothing) -> None:
    raise RuntimeError("secret\0detail")


GATE = threading.Event()


@kind("test.gated", pool="db", input=Nothing)
def gated(ctx: Context, payload: Nothing) -> None:
    GATE.wait(10.0)


@kind("test.exit", pool="db", input=Nothing)
def exits(ctx: Context, payload: Nothing) -> None:
    raise SystemExit(3)


@kind("test.forbidden", pool="db", input=Nothing)
def forbidden(ctx: Context, payload: Nothing) -> None:
    raise PermissionError("no right to do that")


@kind("test.limited", pool="db", input=Nothing)
def limited(ctx: Context, payload: Nothing) -> None:
    raise RateLimited("slow down", retry_after_s=7.0)


@kind("test.notjson", pool="db", input=Nothing)
def not_json(ctx: Context, payload: Nothing) -> object:
    return {"handle": object()}


@kind("test.nul", pool="db", input=Nothing)
def nul(ctx: Context, payload: Nothing) -> object:
    return {"text": "a\0b"}


@kind("test.surrogate", pool="db", input=Nothing)
def surrogate(ctx: Context, payload: Nothing) -> object:
    return {"text": "a\ud800b"}


class Dumb(Exception):
    """An error that can't say what it is."""

    def __str__(self) -> str:
        raise ValueError("no words")


@kind("test.dumb", pool="db", input=Nothing)
def dumb(ctx: Context, payload: Nothing) -> None:
    raise Dumb


@kind("test.soon", pool="db", input=Nothing)
def soon(ctx: Context, payload: Nothing) -> None:
    error = Permanent("later", error_class="nonsense")  # type: ignore[arg-type]  # a kind's author may do it
    error.retry_after_s = "soon"  # type: ignore[assignment]
    raise error


class Trap(Exception):
    """An error that breaks who reads it."""

    @property
    def retry_after_s(self) -> float:
        raise RuntimeError("not to be read")


@kind("test.trap", pool="db", input=Nothing)
def trap(ctx: Context, payload: Nothing) -> None:
    raise Trap


@kind("test.digits", pool="db", input=Nothing)
def digits(ctx: Context, payload: Nothing) -> object:
    return {"n": 10**5000}


@kind("test.circle", pool="db", input=Nothing)
def circle(ctx: Context, payload: Nothing) -> object:
    held: dict[str, object] = {}
    held["itself"] = held
    return held


@kind("test.large", pool="db", input=Nothing)
def large(ctx: Context, payload: Nothing) -> object:
    return "x" * 300_000


@kind("test.strict", pool="db", input=Odd)
def strict(ctx: Context, payload: Odd) -> object:
    return payload.n


@kind("test.deep", pool="db", input=Odd)
def deep(ctx: Context, payload: Odd) -> None:
    if payload.n:
        deep(ctx, Odd(n=payload.n - 1)) if payload.n % 2 else deeper(ctx, payload)
    raise RuntimeError("ü" * 3000 + "the end")


def deeper(ctx: Context, payload: Odd) -> None:
    deep(ctx, Odd(n=payload.n - 1))


@kind("test.full", pool="db", input=Nothing)
def full(ctx: Context, payload: Nothing) -> None:
    with open("/dev/full", "ab", buffering=0) as log:
        log.write(b"effect 1\n")


@kind("test.patient", pool="db", input=Nothing, timeout_s=0.05)
def patient(ctx: Context, payload: Nothing) -> None:
    end_s = time.monotonic() + 5
    while time.monotonic() < end_s:
        ctx.checkpoint()
        time.sleep(0.005)
    raise Permanent("nobody asked it to stop")


def run(stage: Stage, name: str, task_input: str = "{}") -> int:
    session = stage.add_session()
    (task,) = stage.submit(name, input=task_input)
    with stage.process(session) as process:
        for message in list(stage.tick()):
            execute.run_lease(process, message.lease, message.token)
    return task


def error_of(stage: Stage, task: int) -> dict[str, str]:
    found = stage.one("SELECT error FROM task_body WHERE task_id = %s", task)
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    ("name", "state", "error_class", "words"),
    [
        ("test.raise", "failed_retryable", "bug", "RuntimeError"),
        ("test.exit", "failed_retryable", "bug", "SystemExit"),
        ("test.forbidden", "failed_terminal", "permission", "no right"),
        ("test.notjson", "failed_terminal", "validation", "can't be written as JSON"),
        ("test.nul", "failed_terminal", "validation", "NUL"),
        ("test.surrogate", "failed_terminal", "validation", "surrogate"),
        ("test.large", "failed_terminal", "validation", "limit of 262,144"),
        ("test.dumb", "failed_retryable", "bug", "its own __str__ raised ValueError"),
        ("test.soon", "failed_retryable", "bug", "later"),
        ("test.trap", "failed_retryable", "bug", "a Trap that can't be read"),
        ("test.digits", "failed_terminal", "validation", "more than 4,300 digits"),
        ("test.circle", "failed_terminal", "validation", "can't be written as JSON"),
        ("test.strict", "failed_terminal", "validation", "n"),
    ],
)
def test_an_error_ends_in_a_clear_state(stage: Stage, name: str, state: str, error_class: str, words: str) -> None:
    task = run(stage, name)
    assert stage.state(task) == state
    error = error_of(stage, task)
    assert error["class"] == error_class
    assert words in error["message"]
    assert stage.one("SELECT data ->> 'class' FROM event WHERE task_id = %s AND seq = 3", task) == error_class
    attempt_class, trace = stage.connection.execute(
        "SELECT error_class, traceback FROM attempt WHERE task_id = %s", (task,)
    ).fetchone() or ("", "")
    assert attempt_class == error_class
    assert any(name in trace for name in ("Error", "Exit", "Permanent", "Dumb"))
    assert len(trace.encode()) <= 8192
    assert stage.row(task)["attempts_used"] == 1
    assert stage.one("SELECT count(*) FROM lease") == 0


def test_of_a_long_traceback_the_last_8_kib_are_kept_with_the_error_itself(stage: Stage) -> None:
    task = run(stage, "test.deep", '{"n": 60}')
    trace = stage.one("SELECT traceback FROM attempt WHERE task_id = %s", task)
    assert 8180 < len(trace.encode()) <= 8192  # a cut through the middle of a letter costs the whole letter
    assert trace.endswith("üüthe end\n") and "\N{REPLACEMENT CHARACTER}" not in trace
    assert "in deeper\n" in trace and "Traceback (most recent call last)" not in trace


def test_a_full_disk_under_a_kinds_log_of_effects_is_told_in_words_and_ends(stage: Stage) -> None:
    task = run(stage, "test.full")
    in_words = {"class": "bug", "message": "OSError: [Errno 28] No space left on device"}
    assert stage.state(task) == "failed_retryable"
    assert error_of(stage, task) == in_words
    assert stage.one("SELECT count(*) FROM lease") == 0
    try_again(stage, task)
    assert stage.state(task) == "failed_terminal"
    assert error_of(stage, task) == in_words
    assert stage.one("SELECT count(*) FROM lease") == 0
    assert stage.events(task) == ["submit", "claim", "fail", "requeue", "claim", "bury"]
    assert stage.row(task)["attempts_used"] == 2


def try_again(stage: Stage, task: int) -> None:
    """As if the time of its next attempt had come."""
    stage.connection.execute("UPDATE task SET not_before = clock_timestamp() WHERE id = %s", (task,))
    transitions.wake_due(stage.connection, actor="sweep")
    session = stage.add_session()
    with stage.process(session) as process:
        stage.run_all(process)


def test_a_bug_is_tried_once_more_and_then_buried(stage: Stage) -> None:
    task = run(stage, "test.raise")
    try_again(stage, task)
    assert stage.events(task) == ["submit", "claim", "fail", "requeue", "claim", "bury"]
    assert stage.state(task) == "failed_terminal"


def test_a_rate_limit_puts_the_task_back_without_spending_an_attempt(stage: Stage) -> None:
    task = run(stage, "test.limited")
    row = stage.row(task)
    assert (row["state"], row["attempts_used"], row["postponements"]) == ("queued", 0, 1)
    wait_s = stage.one("SELECT extract(epoch FROM not_before - now()) FROM task WHERE id = %s", task)
    assert 6 < wait_s < 9


def test_an_unknown_kind_or_version_is_held_until_a_worker_knows_it(stage: Stage) -> None:
    session = stage.add_session()
    (unknown,) = stage.submit("from.the.future", pool="db")
    (newer,) = stage.submit("noop.single", version=99)
    with stage.process(session) as process:
        stage.run_all(process)
    for task in (unknown, newer):
        assert stage.state(task) == "paused"
        assert stage.row(task)["holds"] == ["version"]
        assert stage.row(task)["attempts_used"] == 0
    assert transitions.resume_version(stage.connection, actor="sweep") == 0
    stage.add_session(kinds=["from.the.future@1", "noop.single@99"])
    assert transitions.resume_version(stage.connection, actor="sweep") == 2
    assert stage.state(unknown) == "queued"


def test_a_task_past_its_time_limit_that_listens_is_stopped_as_a_timeout(stage: Stage) -> None:
    import threading

    session = stage.add_session()
    (task,) = stage.submit("test.patient")
    with stage.process(session) as process:
        (message,) = stage.tick()
        thread = threading.Thread(target=execute.run_lease, args=(process, message.lease, message.token))
        thread.start()
        while thread.is_alive():
            watch.settle_overdue(process, stage.connection)
            thread.join(0.01)
    assert stage.state(task) == "failed_retryable"
    assert error_of(stage, task)["class"] == "timeout"


def test_a_thread_that_does_not_listen_is_settled_from_outside_and_its_lease_is_a_zombie(stage: Stage) -> None:
    import threading

    release = threading.Event()

    def deaf(ctx: Context, payload: Nothing) -> None:
        release.wait(20)

    kind(f"test.deaf{uuid.uuid4().hex}", pool="db", input=Nothing, timeout_s=0.01)(deaf)
    name = next(one.name for one in registry.all_kinds() if one.run is deaf)
    session = stage.add_session()
    (task,) = stage.submit(name)
    with stage.process(session) as process:
        (message,) = stage.tick()
        thread = threading.Thread(target=execute.run_lease, args=(process, message.lease, message.token))
        thread.start()
        while not process.running:
            thread.join(0.005)
        running = process.running[message.lease]
        running.task_began_s -= 3600  # an hour passes
        watch.settle_overdue(process, stage.connection)
        assert stage.state(task) == "failed_retryable"
        assert error_of(stage, task)["class"] == "timeout"
        assert watch.zombies(process)[0] == 1
        zombie = stage.one("SELECT zombie_since IS NOT NULL FROM lease WHERE id = %s", message.lease)
        assert zombie  # it still counts as a slot in use
        assert watch.stuck_pools(process, {"db": 1}, older_than_s=30) == []  # not yet
        running.taken_over_s -= 31
        assert watch.stuck_pools(process, {"db": 1}, older_than_s=30) == ["db"]
        assert watch.stuck_pools(process, {"db": 2}, older_than_s=30) == []
        release.set()
        thread.join()
        assert stage.one("SELECT count(*) FROM lease") == 0
        assert watch.zombies(process)[0] == 0
    assert stage.events(task) == ["submit", "claim", "fail"]


def test_a_draining_process_hands_back_what_it_runs_without_spending_an_attempt(stage: Stage) -> None:
    session = stage.add_session({"db": 1})
    tasks = stage.submit("noop", n=3)
    (message,) = stage.tick()
    with stage.process(session) as process:
        process.drain()
        execute.run_lease(process, message.lease, message.token)
    assert {stage.state(task) for task in tasks} == {"queued"}
    assert {stage.row(task)["ready"] for task in tasks} == {True}
    assert stage.one("SELECT count(*) FROM lease") == 0


def test_nothing_is_handed_back_before_the_fence_is_closed(stage: Stage) -> None:
    import threading

    session = stage.add_session()
    (task,) = stage.submit("noop.sleep", input='{"sleep_s": 30}')
    with stage.process(session) as process:
        (message,) = stage.tick()
        thread = threading.Thread(target=execute.run_lease, args=(process, message.lease, message.token), daemon=True)
        thread.start()
        while not process.running:
            thread.join(0.005)
        with pytest.raises(RuntimeError, match="fence"):
            watch.hand_back(process, stage.connection)
        process.fence.close()
        thread.join(10)  # it sees the closed fence by itself, and leaves: what it held isn't forgotten
        assert not thread.is_alive()
        assert watch.hand_back(process, stage.connection) == 1
    assert stage.state(task) == "queued"
    assert stage.events(task) == ["submit", "claim", "interrupt"]
    assert stage.row(task)["attempts_used"] == 0


@pytest.mark.parametrize("forged_at", [0, 1])
def test_a_doubled_message_runs_once_also_when_both_are_claimed_in_one_company(stage: Stage, forged_at: int) -> None:
    session = stage.add_session()
    stage.submit()
    (message,) = stage.tick()
    company = [(message.lease, message.token)] * 2
    company.insert(forged_at, (message.lease, message.token + 1))
    with stage.process(session) as process:
        assert [len(tasks) for tasks in process._claim(company)] == [1 if n == 1 - forged_at else 0 for n in range(3)]


def test_an_outcome_that_cannot_be_stored_holds_up_no_company_over_a_single_connection_either(stage: Stage) -> None:
    session = stage.add_session()
    stage.submit(n=2)
    messages = stage.tick()
    with stage.process(session, connections=1) as process:
        claimed = process._claim([(message.lease, message.token) for message in messages])
        tasks = [task for (task,) in claimed]
        ended = [
            Ended(
                lease=message.lease,
                token=message.token,
                outcomes=[
                    Outcome(task=task.id, release_no=task.release_no, event=Event.SUCCEED, slot_s=0.0, output=output)
                ],
            )
            for message, task, output in zip(messages, tasks, ('"fine"', '"\\u0000"'), strict=True)
        ]
        fine, refused = process._settle(ended)
    assert fine is None and isinstance(refused, psycopg.DataError)
    assert [stage.state(task.id) for task in tasks] == ["succeeded", "running"]


def test_a_task_that_somebody_has_locked_keeps_no_other_of_its_worker_from_settling(stage: Stage) -> None:
    session = stage.add_session()
    locked, other = stage.submit("test.gated")[0], stage.submit()[0]
    leases = {}
    for message in stage.tick():
        leases[stage.one("SELECT task_id FROM lease_member WHERE lease_id = %s", message.lease)] = message
    with stage.process(session, connections=1) as process, stage.open() as psql:
        with borrowed(process.db) as only:
            only.execute("SET lock_timeout = '50ms'")
        thread = threading.Thread(
            target=execute.run_lease, args=(process, leases[locked].lease, leases[locked].token), daemon=True
        )
        thread.start()
        wait_until(lambda: stage.state(locked) == "running", within_s=5)
        psql.execute("BEGIN")
        psql.execute("SELECT FROM task WHERE id = %s FOR UPDATE", (locked,))
        GATE.set()
        for _ in range(3):  # whenever it comes again, and in whose company
            execute.run_lease(process, leases[other].lease, leases[other].token)
            assert (stage.state(locked), stage.state(other)) == ("running", "succeeded")
            (other,) = stage.submit()
            (leases[other],) = stage.tick()
        psql.execute("ROLLBACK")
        thread.join(10.0)
    assert stage.state(locked) == "succeeded"


def test_of_a_company_in_which_one_is_locked_the_others_are_settled(stage: Stage) -> None:
    session = stage.add_session()
    stage.submit(n=3)
    messages = stage.tick()
    with stage.process(session, connections=1) as process, stage.open() as psql:
        claimed = process._claim([(message.lease, message.token) for message in messages])
        with borrowed(process.db) as only:
            only.execute("SET lock_timeout = '50ms'")
        ended = [
            Ended(
                lease=message.lease,
                token=message.token,
                outcomes=[Outcome(task=task.id, release_no=task.release_no, event=Event.SUCCEED, slot_s=0.0)],
            )
            for message, (task,) in zip(messages, claimed, strict=True)
        ]
        psql.execute("BEGIN")
        psql.execute("SELECT FROM lease WHERE id = %s FOR UPDATE", (ended[1].lease,))
        first, locked, third = process._settle(ended)
        assert (first, third) == (None, None) and isinstance(locked, psycopg.errors.LockNotAvailable)
        assert isinstance(process.settle_alone(ended[1]), psycopg.errors.LockNotAvailable)
        psql.execute("ROLLBACK")
        assert process.settle_alone(ended[1]) is None
    assert stage.one("SELECT count(*) FROM task WHERE state = 'succeeded'") == 3


def test_a_claim_whose_answer_was_lost_is_handed_back_without_spending_an_attempt(stage: Stage) -> None:
    session = stage.add_session()
    (task,) = stage.submit()
    (message,) = stage.tick()
    stage.claim(message, session, pid=os.getpid())  # committed, but the process never heard of it
    with stage.process(session) as process:
        assert watch.hand_back_unheld(process, stage.connection) == 0  # it may just be on its way
        stage.connection.execute("UPDATE lease SET claimed_at = claimed_at - interval '1 minute'")
        assert watch.hand_back_unheld(process, stage.connection) == 1
    assert stage.events(task) == ["submit", "claim", "interrupt"]
    assert (stage.row(task)["ready"], stage.row(task)["attempts_used"]) == (True, 0)
    assert stage.one("SELECT count(*) FROM lease") == 0


def test_a_lease_of_which_all_had_expired_goes_though_the_answer_to_its_claim_was_lost(stage: Stage) -> None:
    session = stage.add_session()
    (task,) = stage.submit()
    (message,) = stage.tick()
    stage.connection.execute("UPDATE task SET start_by = clock_timestamp() - interval '1 second'")
    stage.claim(message, session, pid=os.getpid())
    assert stage.state(task) == "failed_terminal"
    assert stage.one("SELECT count(*) FROM lease") == 1, "whoever claimed it would drop it"
    with stage.process(session) as process:
        stage.connection.execute("UPDATE lease SET claimed_at = claimed_at - interval '1 minute'")
        watch.hand_back_unheld(process, stage.connection)
    assert stage.one("SELECT count(*) FROM lease") == 0


def test_a_fenced_worker_begins_no_effect_and_settles_nothing(stage: Stage) -> None:
    session = stage.add_session()
    (task,) = stage.submit()
    (message,) = stage.tick()
    with stage.process(session) as process:
        process.fence.close()
        execute.run_lease(process, message.lease, message.token)
    assert stage.state(task) == "queued"
    assert stage.events(task) == ["submit"]


def test_the_fence_falls_fifteen_seconds_after_the_last_beat_began_and_stays_down() -> None:
    beats = [100.0]
    fence = Fence(lambda: beats[-1])
    fence.check(114.9)
    beats.append(101.0)
    fence.check(115.9)
    with pytest.raises(LeaseLost):
        fence.check(116.1)
    beats.append(200.0)
    with pytest.raises(LeaseLost):
        fence.check(200.1)


def test_the_fence_falls_before_anyone_may_think_the_worker_dead() -> None:
    assert sessions.BEAT_EVERY_S * 3 <= sessions.FENCE_AFTER_S < sessions.DEAD_AFTER_S
