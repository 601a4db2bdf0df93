"""Calls on the real stages: a permit for each, waits in the slot or back in line, and what each answer leaves."""

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from pydantic import BaseModel

from harness.engine import sweep, watch
from harness.engine.process import Fence, boottime_s
from harness.engine.schedules import Firing
from harness.kinds import Calling, Context, NoPermit, RateLimited, Transient, calling, kind
from harness.policy.permits import Ask, Granted, Report, Want
from harness.store.permits import Permits
from tests.engine.line import HTTP, LLM, Line, opened
from tests.stage import Stage, wait_until


class Nothing(BaseModel):
    """No input."""


class Script:
    """What the next calls do, and what they saw."""

    def __init__(self) -> None:
        self.acts: list[Any] = []
        self.seen: list[str] = []
        self.go = threading.Event()
        self.inside = threading.Event()

    def act(self, call: Calling) -> str:
        self.seen.append("called")
        self.inside.set()
        act = self.acts.pop(0) if self.acts else "fine"
        if isinstance(act, BaseException):
            raise act
        return str(act(call)) if callable(act) else str(act)


SCRIPT = Script()


@kind("test.call", pool="llm", input=Nothing, resources={LLM: 1}, timeout_s=20)
def calls(ctx: Context, payload: Nothing) -> str:
    return ctx.call(LLM, SCRIPT.act, cost=100)


@kind("test.call_both", pool="llm", input=Nothing, resources={LLM: 1, HTTP: 1})
def calls_both(ctx: Context, payload: Nothing) -> str:
    return ctx.call((LLM, HTTP), SCRIPT.act, cost={LLM: 7})


@kind("test.call_async", pool="llm", input=Nothing, resources={LLM: 1})
def calls_async(ctx: Context, payload: Nothing) -> list[str]:
    async def one(call: Calling) -> str:
        await asyncio.sleep(0.01)
        return SCRIPT.act(call)

    async def several() -> list[str]:
        return await asyncio.gather(*(ctx.acall(LLM, one) for _ in range(3)))

    return asyncio.run(several())


@kind("test.call_twice", pool="llm", input=Nothing, resources={LLM: 1})
def call_twice(ctx: Context, payload: Nothing) -> None:
    ctx.call(LLM, SCRIPT.act)
    ctx.call(LLM, SCRIPT.act)


@kind("test.falls_back", pool="llm", input=Nothing, resources={LLM: 1})
def falls_back(ctx: Context, payload: Nothing) -> str:
    try:
        return ctx.call(LLM, SCRIPT.act)
    except NoPermit:
        return "something cheaper"


@kind("test.undeclared", pool="llm", input=Nothing, resources={LLM: 1})
def undeclared(ctx: Context, payload: Nothing) -> None:
    ctx.call(HTTP, SCRIPT.act)


@kind("test.odd_cost", pool="llm", input=Nothing, resources={LLM: 1})
def odd_cost(ctx: Context, payload: Nothing) -> None:
    ctx.call(LLM, SCRIPT.act, cost=-1)


@kind("test.acall_hangs", pool="llm", input=Nothing, resources={LLM: 1})
def acall_hangs(ctx: Context, payload: Nothing) -> None:
    async def hang() -> None:
        SCRIPT.inside.set()
        try:
            await asyncio.sleep(30)
        finally:
            SCRIPT.seen.append("cleaned")

    asyncio.run(ctx.acall(LLM, hang))


@pytest.fixture
def line(stage: Stage, broker_url: str) -> Iterator[Line]:
    global SCRIPT
    SCRIPT = Script()
    with opened(stage, broker_url) as line:
        yield line
        SCRIPT.go.set()


def test_a_call_holds_a_permit_while_it_runs_and_none_after(line: Line) -> None:
    SCRIPT.acts = [lambda call: line.in_flight()]
    task = line.run()
    assert line.output(task) == "1"
    assert line.in_flight() == 0
    assert line.facts()["success"] == 1


def test_a_call_of_two_resources_has_both_or_none(line: Line) -> None:
    SCRIPT.acts = [lambda call: f"{line.in_flight(LLM)} {line.in_flight(HTTP)}"]
    task = line.run("test.call_both")
    assert line.output(task) == "1 1"
    line.set(HTTP, capacity=1)
    line.take(HTTP, 1)
    task = line.run("test.call_both")
    assert line.stage.state(task) == "queued" and SCRIPT.seen == ["called"]
    assert (line.in_flight(LLM), line.in_flight(HTTP)) == (0, 1)


def test_several_coroutines_call_at_once_with_a_permit_each(line: Line) -> None:
    SCRIPT.acts = [lambda call: line.in_flight()] * 3
    task = line.run("test.call_async")
    output = line.output(task)
    assert len(output) == 3 and max(map(int, output)) > 1
    assert line.in_flight() == 0


def test_a_short_wait_is_served_by_wake_up_in_the_slot(line: Line) -> None:
    line.set(LLM, capacity=1)
    theirs = line.take(LLM, 1)
    task, thread = line.start()
    wait_until(lambda: line.reading().waiting == 1, within_s=5)
    thread.join(0.1)  # what is over sooner than LOOK_S / 10 isn't counted as a wait
    assert SCRIPT.seen == []
    freed_s = time.monotonic()
    line.others.finish(theirs, Report(outcome="success"))
    thread.join(5)
    assert time.monotonic() - freed_s < 3.0, "less than it would have waited"
    assert line.stage.state(task) == "succeeded" and line.stage.row(task)["postponements"] == 0
    assert line.facts()["waited"] == 1


def test_no_more_calls_than_connections_are_sent_and_each_wait_for_one_is_measured(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calling, "CONNECTIONS", 1)
    SCRIPT.acts = [lambda call: SCRIPT.go.wait(20)]
    first, one = line.start()
    assert SCRIPT.inside.wait(5)
    second, other = line.start()
    wait_until(lambda: line.facts().get("connections_waited_for") == 1, within_s=5)
    assert line.in_flight() == 2 and SCRIPT.seen == ["called"], "it has its permit, and nothing to send it on"
    other.join(0.1)
    SCRIPT.go.set()
    for thread in (one, other):
        thread.join(5)
    assert {line.stage.state(task) for task in (first, second)} == {"succeeded"}
    waits = line.process.waits.read()[LLM]
    assert waits["n"] == 2 and waits["max_s"] >= 0.1
    assert (line.facts()["connections_in_use"], line.facts()["connections_waited_for"], line.in_flight()) == (0, 0, 0)


def test_what_is_not_worth_the_slot_goes_back_in_line_without_an_attempt_and_says_why(line: Line) -> None:
    line.set(LLM, capacity=1)
    line.process.downstream._call_s[LLM] = 60.0  # a call takes a minute
    line.take(LLM, 1)
    line.stand(LLM, 2)
    began_s = time.monotonic()
    task = line.run()
    assert time.monotonic() - began_s < 4.0 and SCRIPT.seen == []
    row = line.stage.row(task)
    assert (row["state"], row["attempts_used"], row["postponements"], row["ready"]) == ("queued", 0, 1, False)
    assert line.stage.events(task) == ["submit", "claim", "postpone"]
    data = line.stage.one("SELECT data FROM event WHERE task_id = %s AND event = 'postpone'", task)
    assert data["class"] == "no_permit"
    assert data["reason"] == "llm:default: limited to 1 calls at a time; 1 wait before this one"
    assert 119 < line.due_in_s(task) < 123
    assert line.reading().asked == 2, "who holds the permit, and who is before it"


def test_p0_waits_in_its_slot_where_others_go_back(line: Line) -> None:
    line.set(LLM, capacity=1)
    line.process.downstream._call_s[LLM] = 60.0
    theirs = line.take(LLM, 1)
    task, thread = line.start(priority=0)
    wait_until(lambda: line.reading().waiting_p0 == 1, within_s=5)
    thread.join(0.6)
    assert thread.is_alive() and line.stage.state(task) == "running"
    line.others.finish(theirs, Report(outcome="success"))
    thread.join(5)
    assert line.stage.state(task) == "succeeded"


def test_who_waits_for_a_permit_obeys_a_cancel_and_leaves_the_line(line: Line) -> None:
    line.set(LLM, capacity=1)
    line.process.downstream._call_s[LLM] = 12.0
    line.take(LLM, 1)
    task, thread = line.start(priority=0)
    wait_until(lambda: line.reading().waiting == 1, within_s=5)
    line.stage.connection.execute("UPDATE task SET want = 'cancel' WHERE id = %s", (task,))
    wished_s = time.monotonic()
    watch.read_wishes(line.process, line.stage.connection)
    thread.join(5)
    assert time.monotonic() - wished_s < 1.0
    assert line.stage.state(task) == "cancelled" and SCRIPT.seen == []
    assert line.reading().waiting == 0


def test_a_wait_ends_before_the_tasks_own_time_limit_and_spends_nothing(line: Line) -> None:
    line.set(LLM, capacity=1)
    line.take(LLM, 1)
    task, thread = line.start(priority=0)
    wait_until(lambda: line.reading().waiting == 1, within_s=5)
    (running,) = line.process.running.values()
    running.task_began_s -= running.timeout_s - 0.4  # its time is nearly over
    thread.join(5)
    assert line.stage.state(task) == "queued" and line.stage.row(task)["attempts_used"] == 0


def test_a_used_up_bucket_puts_the_task_back_until_it_has_enough(line: Line) -> None:
    line.set(LLM, rpm=6.0)
    task = line.run()
    while line.stage.state(task) == "succeeded":
        task = line.run()
    assert line.stage.row(task)["attempts_used"] == 0
    assert "its requests a minute are used up for" in line.why(task)
    assert 4 < line.due_in_s(task) < 20


def test_tokens_that_were_reserved_and_not_used_are_given_back(line: Line) -> None:
    line.set(LLM, tpm=60_000.0)
    burst = 0

    def thrifty(call: Calling) -> str:
        call.used(1)
        return "fine"

    SCRIPT.acts = [thrifty] * 200
    line.process.downstream.live = dict(line.process.downstream.live)
    for _ in range(60):  # 6,000 reserved, 60 used
        burst += line.stage.state(line.run()) == "succeeded"
    assert burst == 60


def test_a_429_puts_the_task_back_at_retry_after_and_tells_the_limiter(line: Line) -> None:
    SCRIPT.acts = [RateLimited("429", retry_after_s=7.0)]
    task = line.run()
    row = line.stage.row(task)
    assert (row["state"], row["attempts_used"]) == ("queued", 0)
    assert 6 < line.due_in_s(task) < 9
    assert line.facts()["drop"] == 1 and line.in_flight() == 0


def test_an_outage_spends_an_attempt_of_few_and_none_while_the_breaker_is_open(line: Line) -> None:
    tasks = []
    for _ in range(40):
        SCRIPT.acts = [Transient("503: the provider is down")]
        tasks.append(line.run())
        if line.reading().breaker == "open":
            break
    assert line.reading().breaker == "open"
    assert line.stage.row(tasks[-1])["attempts_used"] == 0, "the one that opened it was postponed"
    assert line.stage.row(tasks[0])["attempts_used"] == 1
    called = len(SCRIPT.seen)
    late = [line.run() for _ in range(5)]
    assert len(SCRIPT.seen) == called, "none is sent while it is open"
    for task in late:
        row = line.stage.row(task)
        assert (row["state"], row["attempts_used"], row["postponements"]) == ("queued", 0, 1)
        assert "its breaker is open" in line.why(task)
    assert {line.stage.state(task) for task in tasks} <= {"failed_retryable", "queued"}


def test_an_empty_retry_budget_delays_a_retry_and_spends_nothing_for_it(line: Line) -> None:
    due_s = []
    for per_s in (100.0, 0.01, 0.01, 0.01):
        line.set(LLM, retry_ratio=0.0, retry_per_s=per_s)
        SCRIPT.acts = [Transient("500")]
        task = line.run()
        assert (line.stage.state(task), line.stage.row(task)["attempts_used"]) == ("failed_retryable", 1)
        due_s.append(line.due_in_s(task))
    assert due_s[0] < 1.0
    assert 50 < due_s[-2] < due_s[-1] - 50, "each waits for a retry of its own"


def pressed(line: Line, level: int) -> None:
    """As if the level had just become this, and the process had looked."""
    line.stage.connection.execute(
        "INSERT INTO level VALUES (1, %s, now(), now(), '{}', '{}') ON CONFLICT (id) DO UPDATE SET level = %s",
        (level, level),
    )
    watch.read_resources(line.process, line.stage.connection)


def test_under_pressure_a_retry_costs_twice_the_wait(line: Line) -> None:
    waits_s = []
    for level in (0, 1):
        pressed(line, level)
        line.set(LLM, retry_ratio=0.0, breaker=False)  # half a retry a second, and half of that
        for _ in range(12):
            SCRIPT.acts = [Transient("500")]
            task = line.run(priority=1)
        waits_s.append(line.due_in_s(task))
    live = line.process.downstream.live[LLM].resource
    assert live.retry_per_s == 0.25
    # Twelve retries more, each 4 s instead of 2.
    assert waits_s[1] - 2 * waits_s[0] > 30


def test_at_critical_only_p0_and_p1_take_from_the_retry_budget(line: Line) -> None:
    pressed(line, 3)
    line.set(LLM, breaker=False)
    for priority in (2, 3) * 6:
        SCRIPT.acts = [Transient("500")]
        task = line.run(priority=priority)
        assert line.stage.state(task) == "failed_retryable"
        assert 119 < line.due_in_s(task) < 241
    SCRIPT.acts = [Transient("500")]
    assert line.due_in_s(line.run(priority=1)) < 5, "the others have left the budget as it was"
    pressed(line, 0)
    assert line.process.downstream.live[LLM].resource.retry_per_s == 0.5


def test_nothing_is_told_of_a_resource_that_learns_nothing(line: Line) -> None:
    line.set(LLM, breaker=False, limiter="fixed", rpm=None, tpm=None)
    for _ in range(30):
        SCRIPT.acts = [Transient("503"), RateLimited("429", retry_after_s=600.0)]
        line.run()
        line.run()
    reading = line.reading()
    assert (reading.breaker, reading.blocked_until_s) == ("closed", 0.0)
    SCRIPT.acts = []
    assert line.stage.state(line.run()) == "succeeded"


def test_a_call_that_was_left_keeps_its_permit_until_it_returns(line: Line) -> None:
    SCRIPT.acts = [lambda call: SCRIPT.go.wait(20)]
    task, thread = line.start()
    assert SCRIPT.inside.wait(5)
    line.stage.connection.execute("UPDATE task SET want = 'cancel' WHERE id = %s", (task,))
    watch.read_wishes(line.process, line.stage.connection)
    thread.join(5)
    assert line.stage.state(task) == "cancelled"
    assert line.in_flight() == 1 and line.reading().asked == 1
    SCRIPT.go.set()
    wait_until(lambda: line.in_flight() == 0 and line.reading().asked == 0, within_s=5)


@pytest.mark.parametrize("name", ["test.call", "test.call_async"])
def test_no_call_begins_when_the_fence_falls_between_its_permit_and_its_beginning(line: Line, name: str) -> None:
    # As of a process that was stopped there for longer than anybody waits for it.
    line.process.fence = Fence(lambda: boottime_s() - 100.0 * line.in_flight())
    line.run(name)
    assert SCRIPT.seen == []
    wait_until(lambda: line.in_flight() == 0, within_s=5)  # of a coroutine that is cancelled beside, a moment later


def test_a_call_is_left_after_its_resources_time_and_that_is_a_time_out_of_the_resource(line: Line) -> None:
    line.set(LLM, timeout_s=0.5)
    SCRIPT.acts = [lambda call: SCRIPT.go.wait(20)]
    began_s = time.monotonic()
    task = line.run()
    assert 0.5 <= time.monotonic() - began_s < 5
    row = line.stage.row(task)
    assert (row["state"], row["attempts_used"]) == ("failed_retryable", 1)
    attempt = line.stage.connection.execute(
        "SELECT error_class, message FROM attempt WHERE task_id = %s", (task,)
    ).fetchone()
    assert attempt is not None and attempt[0] == "timeout" and "0.5 s that its resource allows" in attempt[1]
    assert line.in_flight() == 1, "it runs on, and its permit with it"
    SCRIPT.go.set()
    wait_until(lambda: line.in_flight() == 0, within_s=5)
    line.set(LLM, timeout_s=60.0)
    assert line.stage.state(line.run()) == "succeeded"


def test_a_coroutine_is_stopped_after_its_resources_time(line: Line) -> None:
    line.set(LLM, timeout_s=0.5)
    task = line.run("test.acall_hangs")
    assert (line.stage.state(task), SCRIPT.seen) == ("failed_retryable", ["cleaned"])
    assert line.in_flight() == 0


def test_a_running_calls_permit_is_renewed_and_told_to_an_emptied_redis(line: Line) -> None:
    SCRIPT.acts = [lambda call: SCRIPT.go.wait(20)]
    task, thread = line.start()
    assert SCRIPT.inside.wait(5)
    with redis.Redis.from_url(line.url) as client:
        client.flushdb()
        assert client.dbsize() == 0
        line.process.downstream.permits.renew()
        assert line.in_flight() == 1
        SCRIPT.go.set()
        thread.join(5)
        assert line.stage.state(task) == "succeeded" and line.in_flight() == 0


def test_permits_of_a_killed_worker_are_free_when_its_task_is_taken_back(line: Line) -> None:
    (task,) = line.stage.submit("test.call")
    (message,) = line.stage.tick()
    session = line.stage.add_session()
    (claimed,) = line.stage.claim(message, session)
    dead = Permits(line.url, lambda: line.process.downstream.live)  # of a process that is killed
    member = f"{task}:{claimed.release_no}:1"
    ask = Ask(
        member=member, tenant=claimed.tenant, priority=2, calls_done=0, since_s=0.0, waits=True, wants=(Want(LLM),)
    )
    assert isinstance(dead.acquire(ask), Granted) and line.in_flight() == 1
    line.stage.forget_beats(session)
    assert line.stage.epoch is not None
    swept = sweep.sweep(line.stage.connection, epoch=line.stage.epoch, firing=Firing(), ended=line.others.ended)
    assert swept.lost == 1 and line.in_flight() == 0
    dead.close()


def test_an_override_acts_without_a_restart(line: Line) -> None:
    line.stage.connection.execute(
        "INSERT INTO override (resource, field, value, author, reason) "
        "VALUES (%s, 'capacity', '0', 'jo', 'the provider asked us to stop')",
        (LLM,),
    )
    assert line.stage.state(line.run()) == "succeeded"
    watch.read_resources(line.process, line.stage.connection)
    task = line.run()
    assert (line.stage.state(task), line.stage.row(task)["attempts_used"]) == ("queued", 0)
    line.stage.connection.execute("UPDATE override SET ended_at = now()")
    watch.read_resources(line.process, line.stage.connection)
    assert line.stage.state(line.run()) == "succeeded"


def test_reading_again_what_has_not_changed_makes_no_new_objects(line: Line) -> None:
    watch.read_resources(line.process, line.stage.connection)
    before = line.process.downstream.live
    watch.read_resources(line.process, line.stage.connection)
    after = line.process.downstream.live
    assert all(after[name] is before[name] for name in before)


def test_a_coroutine_is_cancelled_by_a_wish_and_its_permit_is_free(line: Line) -> None:
    task, thread = line.start("test.acall_hangs")
    assert SCRIPT.inside.wait(5) and line.in_flight() == 1
    line.stage.connection.execute("UPDATE task SET want = 'cancel' WHERE id = %s", (task,))
    watch.read_wishes(line.process, line.stage.connection)
    thread.join(5)
    assert line.stage.state(task) == "cancelled" and SCRIPT.seen == ["cleaned"]
    assert line.in_flight() == 0


def test_no_call_begins_past_the_tasks_time_limit(line: Line) -> None:
    gate = threading.Event()
    SCRIPT.acts = [lambda call: gate.wait(10)]
    task, thread = line.start("test.call_twice")
    assert SCRIPT.inside.wait(5)
    (running,) = line.process.running.values()
    running.task_began_s -= running.timeout_s + 1
    gate.set()
    thread.join(5)
    assert SCRIPT.seen == ["called"]
    assert line.error(task)["class"] == "timeout"


def test_a_kind_that_lives_with_a_refusal_goes_on(line: Line) -> None:
    line.set(LLM, capacity=1)
    line.process.downstream._call_s[LLM] = 60.0
    line.take(LLM, 1)
    task = line.run("test.falls_back")
    assert line.output(task) == "something cheaper"


def test_a_resource_that_is_not_declared_and_a_cost_that_makes_no_sense_are_refused(line: Line) -> None:
    for name, words in (("test.undeclared", "doesn't declare the resource"), ("test.odd_cost", "from 0 to")):
        task = line.run(name)
        assert words in line.error(task)["message"]
