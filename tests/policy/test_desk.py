"""One desk: a refusal burns nothing, nobody is overtaken, and after a loss the door opens little by little."""

from copy import deepcopy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from harness.policy import desk
from harness.policy.desk import Desk
from harness.policy.permits import DOOR_S, Report
from harness.policy.resources import Live, Resource

NOW_S = 1_800_000_000.0
OK = Report(outcome="success")


def live(*, proven: int | None = None, **values: Any) -> Live:
    return Live(resource=Resource(name="r", held="call", **({"capacity": 10} | values)), proven=proven)


def binds(it: Desk, of: Live, now_s: float, **facts: Any) -> str:
    asked = {
        "in_flight": 0,
        "ahead": 0,
        "priority": 1,
        "tenant_used": 0,
        "tenant_cap": None,
        "tokens": 0,
    } | facts
    found = desk.binding(it, of, now_s, **asked)
    return found[0] if found else ""


@given(
    capacity=st.integers(1, 30),
    in_flight=st.integers(0, 40),
    ahead=st.integers(0, 40),
    rpm=st.none() | st.floats(1, 1e5),
    tokens=st.integers(0, 10**6),
    limiter=st.sampled_from(("fixed", "csl", "aimd", "gradient")),
)
def test_asking_changes_nothing(
    capacity: int, in_flight: int, ahead: int, rpm: float | None, tokens: int, limiter: str
) -> None:
    of = live(capacity=capacity, rpm=rpm, tpm=1e4, limiter=limiter)
    it = desk.opened(of, NOW_S, reborn=True)
    before = deepcopy(it)
    found = binds(it, of, NOW_S + 1, in_flight=in_flight, ahead=ahead, tokens=tokens)
    assert it == before
    if in_flight + ahead >= capacity:
        assert found in ("concurrency", "redis")


def test_the_first_limit_that_binds_is_told() -> None:
    of = live(rpm=60.0, capacity=1)
    it = desk.opened(of, NOW_S, reborn=False)
    while not binds(it, of, NOW_S):
        desk.let_in(it, of, NOW_S, in_flight=0, tokens=0, first=True)
    full = {"in_flight": 1, "tenant_cap": 1, "tenant_used": 1}
    assert binds(it, of, NOW_S) == "requests"
    assert binds(it, of, NOW_S, in_flight=1) == "concurrency"
    assert binds(it, of, NOW_S, **full) == "tenant"
    it.limiter.blocked_s = NOW_S + 60
    assert binds(it, of, NOW_S, **full) == "blocked"
    sent = desk.Sent(0, NOW_S, 0.0, 0.0)
    for _ in range(5):
        list(desk.told(it, of, NOW_S, sent, Report(outcome="ignore", failure=True), in_flight=0, jitter=0.5))
    assert binds(it, of, NOW_S, **full) == "breaker"


def test_who_needs_few_tokens_does_not_overtake_the_first_in_the_order() -> None:
    of = live(tpm=6_000.0)
    it = desk.opened(of, NOW_S, reborn=False)
    desk.let_in(it, of, NOW_S, in_flight=0, tokens=400, first=True)
    found = desk.binding(it, of, NOW_S, in_flight=1, ahead=0, priority=1, tenant_used=0, tenant_cap=None, tokens=1_000)
    assert found is not None and found[0] == "tokens"
    desk.wait_of_first(it, NOW_S, ahead=0, limit="tokens", wait=found[1])
    assert binds(it, of, NOW_S, ahead=1, tokens=1) == "tokens"
    assert binds(it, of, NOW_S + found[1], ahead=1, tokens=1) == "tokens"
    assert not binds(it, of, NOW_S + found[1], ahead=0, tokens=1_000)
    assert not binds(it, of, NOW_S + found[1] + desk.HEAD_S, ahead=1, tokens=1)


@given(limit=st.integers(1, 200), steps=st.lists(st.floats(0.0, 0.5), min_size=1, max_size=60), ends=st.booleans())
def test_behind_the_door_new_calls_come_little_by_little(limit: int, steps: list[float], ends: bool) -> None:
    of = live(capacity=limit, proven=limit)
    it = desk.opened(of, NOW_S, reborn=True)
    now_s, let_in, ended = NOW_S, 0, 0
    for step_s in steps:
        now_s += step_s
        while not binds(it, of, now_s, in_flight=let_in - ended):
            sent = desk.let_in(it, of, now_s, in_flight=let_in - ended, tokens=0, first=True)
            let_in += 1
            if ends and let_in % 3 == 0:
                list(desk.told(it, of, now_s, sent, OK, in_flight=let_in - ended - 1, jitter=0.0))
                ended += 1
            if let_in > 3 * limit:
                break
        if now_s < NOW_S + DOOR_S:
            assert let_in - ended <= 1 + limit * (now_s - NOW_S) / DOOR_S or let_in > 3 * limit
    if now_s >= NOW_S + DOOR_S:
        assert binds(it, of, now_s, in_flight=limit) == "concurrency"


def test_a_refusal_for_rate_without_a_bucket_stops_the_resource_for_as_long_as_was_said() -> None:
    of = live()
    it = desk.opened(of, NOW_S, reborn=False)
    sent = desk.let_in(it, of, NOW_S, in_flight=0, tokens=0, first=True)
    list(desk.told(it, of, NOW_S, sent, Report(outcome="drop", rate=True, retry_after_s=7.0), in_flight=0, jitter=0.0))
    assert binds(it, of, NOW_S + 6.9) == "requests"
    assert not binds(it, of, NOW_S + 7.0)
    assert desk.limit_now(it, of) == 10
