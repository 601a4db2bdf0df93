"""Permits: all of a call's resources or none, in the order of who waits, and nothing leaks."""

import threading
import time
from collections.abc import Iterator

import pytest
import redis
from django.conf import settings

from harness.policy.errors import Invalid
from harness.policy.permits import Ask, Granted, Refused, Report, Want
from harness.store.permits import Permits
from tests.stage import wait_until
from tests.store.permit_cast import SUCCESS, Resources, ask, forget_all, granted, process

RATE = {"rpm": 60.0}


@pytest.fixture
def resources() -> Resources:
    return Resources(llm={"capacity": 2}, tool={"capacity": 1}, rated={"capacity": 9, **RATE})


@pytest.fixture
def permits(resources: Resources) -> Iterator[Permits]:
    forget_all(settings.BROKER_URL)
    with process(settings.BROKER_URL, resources) as permits:
        yield permits
    forget_all(settings.BROKER_URL)


def in_flight(permits: Permits, name: str) -> int:
    readings = permits.read([name])
    assert readings is not None
    return readings[name].in_flight


def refused(permits: Permits, question: Ask) -> Refused:
    found = permits.acquire(question)
    assert isinstance(found, Refused)
    return found


def test_a_call_gets_all_its_resources_or_none(permits: Permits) -> None:
    first = granted(permits, ask(1, "llm", "tool"))
    found = refused(permits, ask(2, "llm", "tool"))
    assert (found.resource, found.limit, found.limit_now) == ("tool", "concurrency", 1)
    assert in_flight(permits, "llm") == 1
    permits.finish(first, SUCCESS)
    assert (in_flight(permits, "llm"), in_flight(permits, "tool")) == (0, 0)
    granted(permits, ask(2, "llm", "tool"))


def test_a_refusal_burns_no_request_and_no_token(permits: Permits) -> None:
    held = granted(permits, ask(1, "tool"))
    before = permits.read(["rated"])
    for _ in range(50):
        refused(permits, ask(2, "tool", "rated"))
    assert before is not None and before["rated"].rate_wait_s == 0
    permits.finish(held, SUCCESS)
    burst = 0
    while isinstance(permits.acquire(ask(100 + burst, "rated", waits=False)), Granted):
        burst += 1
    assert burst == 4  # five seconds' worth, as if nobody had been refused
    assert refused(permits, ask(999, "rated")).limit == "requests"


def test_asking_again_and_finishing_again_are_harmless(permits: Permits) -> None:
    first = granted(permits, ask(1, "llm"))
    assert granted(permits, ask(1, "llm")).sent == first.sent
    assert in_flight(permits, "llm") == 1
    second = granted(permits, ask(2, "llm"))
    for _ in range(3):
        permits.finish(first, SUCCESS)
    assert in_flight(permits, "llm") == 1
    permits.finish(second, SUCCESS)
    assert in_flight(permits, "llm") == 0


def test_a_tenant_at_its_cap_keeps_nobody_else_out(permits: Permits, resources: Resources) -> None:
    resources.override("llm", tenant_cap=1)
    granted(permits, ask(1, "llm", tenant=1))
    assert refused(permits, ask(2, "llm", tenant=1)).limit == "tenant"
    granted(permits, ask(3, "llm", tenant=2))


def test_p0_goes_first_then_who_has_most_calls_done_then_the_oldest(permits: Permits) -> None:
    running = granted(permits, ask(1, "tool"))
    questions = [
        ask(2, "tool", priority=2, since_s=1_790_000_001.0),
        ask(3, "tool", priority=1, since_s=1_790_000_002.0),
        ask(4, "tool", priority=1, since_s=1_790_000_009.0, calls_done=3),
        ask(5, "tool", priority=0, since_s=1_790_000_010.0),
    ]
    for question in questions:
        refused(permits, question)
    assert [refused(permits, question).ahead for question in questions] == [2, 3, 1, 0]
    order = []
    for _ in questions:
        permits.finish(running, SUCCESS)
        for question in questions:
            if question.member not in order and isinstance(found := permits.acquire(question), Granted):
                order.append(question.member)
                running = found
    assert order == ["5:1:1", "4:1:1", "2:1:1", "3:1:1"]


def test_who_gives_up_keeps_nobody_waiting_and_frees_a_permit_it_never_heard_of(permits: Permits) -> None:
    running = granted(permits, ask(1, "tool"))
    refused(permits, ask(2, "tool", priority=0))
    permits.finish(running, SUCCESS)
    assert refused(permits, ask(3, "tool")).ahead == 1
    permits.give_up(ask(2, "tool", priority=0))
    granted(permits, ask(3, "tool"))
    permits.give_up(ask(3, "tool"))
    assert in_flight(permits, "tool") == 0


def test_an_attempt_that_is_over_holds_and_asks_nothing(permits: Permits) -> None:
    granted(permits, ask(7, "llm", "tool"))
    with process(settings.BROKER_URL, Resources(llm={}, tool={}, rated={})) as another:  # the sweep's
        another.ended([(7, 1)])
    readings = permits.read(["llm", "tool"])
    assert readings is not None
    assert [(one.in_flight, one.asked) for one in readings.values()] == [(0, 0), (0, 0)]


def test_several_attempts_are_over_at_once_also_where_redis_has_lost_its_scripts(permits: Permits) -> None:
    for task in (7, 8, 9):
        granted(permits, ask(task, "rated"))
    with redis.Redis.from_url(settings.BROKER_URL) as client:
        client.script_flush()
    permits.ended([(7, 1), (9, 1), (10, 1)])
    readings = permits.read(["rated"])
    assert readings is not None
    assert (readings["rated"].in_flight, readings["rated"].asked) == (1, 1)


def test_an_override_acts_at_the_next_question(permits: Permits, resources: Resources) -> None:
    resources.override("llm", capacity=3)
    for number in range(3):
        granted(permits, ask(number, "llm"))
    assert refused(permits, ask(9, "llm")).limit_now == 3
    resources.override("llm", capacity=0)
    assert refused(permits, ask(9, "llm")).limit == "blocked"


def listens() -> bool:
    with redis.Redis.from_url(settings.BROKER_URL) as client:
        return bool(client.pubsub_channels("harness:permits:wake:*"))


def test_only_who_may_go_is_woken(permits: Permits) -> None:
    running = granted(permits, ask(1, "tool"))
    first, second = ask(2, "tool"), ask(3, "tool", since_s=1_790_000_005.0)
    refused(permits, first)
    refused(permits, second)
    wait_until(listens, within_s=10)
    over, woken = threading.Event(), set()

    def wait(question: Ask) -> None:
        while not over.is_set():
            if permits.wait(question, 0.5):
                woken.add(question.member)

    waiters = [threading.Thread(target=wait, args=(question,)) for question in (first, second)]
    for waiter in waiters:
        waiter.start()
    permits.finish(running, SUCCESS)
    wait_until(lambda: bool(woken), within_s=10)
    over.wait(0.2)
    over.set()
    for waiter in waiters:
        waiter.join()
    assert woken == {first.member}


def test_a_wake_up_between_question_and_wait_is_not_lost(permits: Permits) -> None:
    running = granted(permits, ask(1, "tool"))
    refused(permits, ask(2, "tool"))
    wait_until(listens, within_s=10)
    permits.finish(running, SUCCESS)
    assert any(permits.wait(ask(2, "tool"), 1.0) for _ in range(20))  # only once is anybody woken


def test_who_needs_two_keeps_its_place_at_both_when_it_has_waited_for_long(permits: Permits) -> None:
    granted(permits, ask(1, "tool"))
    granted(permits, ask(2, "llm"))
    refused(permits, ask(3, "tool", "llm", since_s=time.time()))
    granted(permits, ask(4, "llm"))  # it holds nothing while it waits
    permits.give_up(ask(4, "llm"))
    refused(permits, ask(3, "tool", "llm", since_s=time.time() - 60))
    assert refused(permits, ask(4, "llm", since_s=time.time())).ahead == 1


def test_a_freed_place_is_filled_within_milliseconds(permits: Permits) -> None:
    delays = []
    for number in range(0, 40, 2):
        running = granted(permits, ask(number, "tool"))
        question = ask(number + 1, "tool")
        refused(permits, question)
        freed: list[float] = []

        def free(running: Granted = running, freed: list[float] = freed) -> None:
            time.sleep(0.02)
            permits.finish(running, SUCCESS)
            freed.append(time.perf_counter())

        thread = threading.Thread(target=free)
        thread.start()
        while not isinstance(found := permits.acquire(question), Granted):
            permits.wait(question, 1.0)
        thread.join()
        delays.append(time.perf_counter() - freed[0])
        permits.finish(found, SUCCESS)
    assert sorted(delays)[len(delays) // 2] < 0.05  # by the poll alone it would be 0.1


def test_tokens_that_were_not_used_come_back(permits: Permits, resources: Resources) -> None:
    resources.override("rated", rpm=None, tpm=60_000.0)
    running = [granted(permits, ask(number, Want("rated", 5_000))) for number in range(3)]
    assert refused(permits, ask(3, Want("rated", 5_000))).limit == "tokens"
    permits.finish(running[0], Report(outcome="success", tokens={"rated": 10}))
    granted(permits, ask(3, Want("rated", 4_000)))


def test_a_refusal_for_rate_stops_the_resource_and_leaves_its_limit(permits: Permits) -> None:
    first = granted(permits, ask(1, "llm"))
    permits.finish(first, Report(outcome="drop", rate=True, retry_after_s=30.0))
    found = refused(permits, ask(2, "llm"))
    assert found.limit == "requests" and 29 < found.wait_s <= 30 and found.limit_now == 2


def test_an_open_breaker_refuses_until_it_probes(permits: Permits) -> None:
    for number in range(5):
        held = granted(permits, ask(number, "llm"))
        permits.finish(held, Report(outcome="ignore", failure=True))
    found = refused(permits, ask(9, "llm"))
    assert found.limit == "breaker" and 4 <= found.wait_s <= 6
    readings = permits.read(["llm"])
    assert readings is not None
    assert readings["llm"].breaker == "open" and readings["llm"].breaker_until_s == pytest.approx(
        found.until_s, abs=0.1
    )
    assert [(one.resource, one.reason, one.new) for one in permits.changes()] == [("llm", "breaker_opened", 0)]


def test_changes_stay_until_they_are_kept(permits: Permits, resources: Resources) -> None:
    resources.now = Resources(csl={"limiter": "csl", "capacity": 40}).now
    for number in range(4):
        granted(permits, ask(number, "csl"))
    time.sleep(0.6)  # the limiter takes what hasn't been refused for so long as accepted
    granted(permits, ask(9, "csl"))
    changes = permits.changes()
    assert [(one.old, one.new, one.reason, one.mode) for one in changes] == [(4, 5, "grow", "ramp")]
    assert permits.changes() == changes
    permits.kept(changes[-1].id)
    assert not permits.changes()


def test_retries_beyond_the_budget_are_put_off_further_and_further(permits: Permits) -> None:
    waits = [permits.take_retry("llm") for _ in range(8)]
    assert waits[0] == 0.0 and waits == sorted(waits) and waits[-1] > waits[-2] > 0


def test_what_is_not_there_is_named(permits: Permits) -> None:
    with pytest.raises(Invalid, match="no resource 'nothing'"):
        permits.acquire(ask(1, "nothing"))
    with pytest.raises(Invalid, match="each resource once"):
        permits.acquire(ask(1, "llm", "llm"))


def test_nothing_that_permits_keep_stays_for_ever(permits: Permits) -> None:
    granted(permits, ask(1, "llm", "tool"))
    refused(permits, ask(2, "tool"))
    time.sleep(0.6)
    permits.acquire(ask(3, "llm"))
    permits.acquire(ask(4, "tool"))
    with redis.Redis.from_url(settings.BROKER_URL) as client:
        left = {key: client.ttl(key) for key in client.scan_iter("harness:permits:*") if not key.endswith(b"changes")}
    assert left and all(ttl > 0 for ttl in left.values()), left
