"""What a provider does to its clients over time: an outage, a quota that wanders, odd headers, and the record of it."""

import doctest
import email.utils
import random
import threading
import time

import openai
import pytest

from harness.ops.emulator import law, timeline
from harness.ops.emulator.behaviour import Behaviour
from harness.ops.emulator.counters import Counters
from tests.ops.emulator.callers import CHAT, SECOND_NS, Clock, change, chat, client_of, crowd, emulated, http, stats


def test_while_it_is_down_every_call_fails_and_none_takes_a_place() -> None:
    with emulated(quota=3, down=True, error_status=503) as provider:
        assert crowd(provider, clients=20, calls=2) == {"overloaded": 40}
        seen = stats(provider)
        assert (seen["accepted"], seen["rejected_429"], seen["server_errors"]) == (0, 0, 40)
        change(provider, down=False)
        assert chat(provider)[0] == 200


@pytest.mark.parametrize("stream", [False, True])
def test_what_is_under_way_when_it_goes_down_fails_too(stream: bool) -> None:
    ends: list[object] = []
    with emulated(latency_s=0.6) as provider, client_of(provider) as client:

        def call() -> None:
            try:
                answer = client.chat.completions.create(**CHAT, stream=stream)  # type: ignore[call-overload]
                ends.append(list(answer) if stream else answer)
            except openai.APIError as error:
                ends.append(error)

        caller = threading.Thread(target=call)
        caller.start()
        while not stats(provider)["in_flight"]:
            time.sleep(0.01)
        change(provider, down=True)
        caller.join()
        seen = stats(provider)
    assert isinstance(ends[0], openai.APIConnectionError if stream else openai.InternalServerError)
    assert (seen["answered"], seen["cut"], seen["server_errors"]) == ((0, 1, 0) if stream else (0, 0, 1))


def test_a_quota_that_wanders_stays_in_its_band_and_comes_again_with_its_seed() -> None:
    noisy = Behaviour(quota=50, noise_ratio=0.1, noise_every_s=15)
    drawn = [law.quota_at(noisy, 1, at_s) for at_s in range(0, 15_000, 15)]
    assert drawn == [law.quota_at(noisy, 1, at_s) for at_s in range(0, 15_000, 15)]
    assert drawn != [law.quota_at(noisy, 2, at_s) for at_s in range(0, 15_000, 15)]
    assert (min(drawn), max(drawn)) == (45, 55) and sum(drawn) / 1000 == pytest.approx(50, abs=0.5)
    assert law.quota_at(Behaviour(quota=0, noise_ratio=0.5), 1, 0.0) == 0
    assert min(law.quota_at(Behaviour(quota=1, noise_ratio=0.9), 1, at_s) for at_s in range(0, 900, 15)) == 1


def test_calls_are_let_in_by_the_quota_of_the_moment() -> None:
    clock = Clock()
    with emulated(clock, quota=20, noise_ratio=0.5, noise_every_s=15, latency_s=1.0) as provider:
        for _ in range(3):
            allowed = stats(provider)["quota_now"]
            assert crowd(provider, clients=40, calls=1)["answered"] == allowed
            clock.passes(15)


def test_a_429_may_carry_its_wait_in_any_way_or_none() -> None:
    with emulated(quota=0, retry_after_s=2.5) as provider:
        sent = {}
        for written in ("seconds", "none", "day", "negative", "words", "date"):
            change(provider, retry_after=written)
            before_s = time.time()
            status, _, headers = chat(provider)
            assert status == 429
            sent[written] = headers.get("retry-after")
        assert (sent["seconds"], sent["none"]) == ("3", None)
        assert (sent["day"], sent["negative"], sent["words"]) == ("86400", "-5", "in a moment")
        until_s = email.utils.parsedate_to_datetime(str(sent["date"])).timestamp()
        assert 2.5 <= until_s - before_s <= 5
        assert http(f"{provider.url}/admin/config", {"retry_after": "soon"})[0] == 400


def test_rate_headers_may_be_absurd_or_missing_and_usage_hidden() -> None:
    with emulated() as provider:
        change(provider, rate_headers="absurd", hide_usage=True)
        _, answer, headers = chat(provider)
        assert headers["x-ratelimit-limit-requests"] == "0" and "usage" not in answer
        assert "usage" not in http(f"{provider.base_url}/embeddings", {"model": "m", "input": "x"})[1]
        with client_of(provider) as client:
            stream = client.chat.completions.create(  # type: ignore[call-overload]
                **CHAT, stream=True, stream_options={"include_usage": True}
            )
            assert all(chunk.usage is None for chunk in stream)
        change(provider, rate_headers="none", hide_usage=False)
        _, answer, headers = chat(provider)
        assert not any(name.startswith("x-ratelimit") for name in headers) and answer["usage"]["total_tokens"] > 0


def test_a_provider_may_refuse_nobody_and_slow_down_instead() -> None:
    slow = Behaviour(slow_from=10, quota=1000, latency_s=1.0)
    dice = law.Dice(random.Random(1))
    assert [dice.latency_s(slow, n) for n in (5, 10, 40)] == [1.0, 1.0, 4.0]


def test_the_timeline_charges_each_interval_with_what_was_in_flight_in_it() -> None:
    line, counters = timeline.Timeline(0), Counters()
    quota = {0: 4, 1: 2}

    def advance(at_s: float) -> None:
        line.advance(round(at_s * SECOND_NS), counters, lambda at_ns: quota[at_ns >= SECOND_NS])

    advance(0.125)
    counters.calls += 1
    counters.enter()
    advance(0.5)
    counters.calls += 1
    counters.reject("concurrency")
    advance(1.125)
    counters.leave()
    counters.answered += 1
    advance(1.5)
    told = line.told()
    rows = [dict(zip(told["columns"], row, strict=True)) for row in told["rows"]]
    assert [row["begin_s"] for row in rows] == [0.0, 0.25, 0.5, 0.75, 1.0, 1.25]
    assert [row["busy_s"] for row in rows] == [0.125, 0.25, 0.25, 0.25, 0.125, 0.0]
    assert [row["quota_s"] for row in rows] == [1.0, 1.0, 1.0, 1.0, 0.5, 0.5]
    assert [row["calls"] for row in rows] == [1, 0, 1, 0, 0, 0]
    assert [row["rejected_429"] for row in rows] == [0, 0, 1, 0, 0, 0]
    assert [row["answered"] for row in rows] == [0, 0, 0, 0, 1, 0]


def test_the_timeline_of_a_running_provider_adds_up_to_its_counters() -> None:
    with emulated(quota=5, latency_s=0.1) as provider:
        crowd(provider, clients=10, calls=4)
        time.sleep(0.3)  # so that the last interval is whole
        told, seen = http(f"{provider.url}/admin/timeline")[1], stats(provider)
        sums = {name: sum(row[n] for row in told["rows"]) for n, name in enumerate(told["columns"])}
        assert {name: sums[name] for name in timeline.COUNTED} == {name: seen[name] for name in timeline.COUNTED}
        assert sums["busy_s"] == pytest.approx(0.1 * seen["answered"], rel=0.3)
        http(f"{provider.url}/admin/reset", {})
        assert sum(row[3] for row in http(f"{provider.url}/admin/timeline")[1]["rows"]) == 0


def test_the_examples_hold() -> None:
    assert doctest.testmod(law).failed == 0
