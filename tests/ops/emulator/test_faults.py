"""What goes wrong on purpose, as the real openai client meets it."""

import random
import threading
import time
from collections import Counter

import openai
import pytest

from harness.ops.emulator.app import Emulator
from harness.ops.emulator.behaviour import Behaviour
from harness.ops.emulator.law import Dice, Fault, inflation
from tests.ops.emulator.callers import CHAT, change, chat, client_of, crowd, emulated, http, stats


def test_5xx_come_with_the_status_that_was_set_and_give_their_place_back() -> None:
    with emulated(error_rate=1, quota=1) as provider, client_of(provider) as client:
        for status in (500, 503, 529):
            change(provider, error_status=status)
            with pytest.raises(openai.InternalServerError) as failed:
                client.chat.completions.create(**CHAT)  # type: ignore[call-overload]
            assert failed.value.status_code == status
            assert failed.value.code == ("server_error" if status == 500 else "overloaded")
        seen = stats(provider)
    assert (seen["server_errors"], seen["accepted"], seen["in_flight"], seen["prompt_tokens"]) == (3, 3, 0, 0)


def test_a_dropped_connection_is_no_answer_at_all() -> None:
    with emulated(drop_rate=1) as provider, client_of(provider) as client:
        for stream in (False, True):
            with pytest.raises(openai.APIConnectionError):
                client.chat.completions.create(**CHAT, stream=stream)  # type: ignore[call-overload]
        assert (stats(provider)["dropped"], stats(provider)["in_flight"]) == (2, 0)


def test_a_cut_stream_gives_its_first_half_and_then_breaks() -> None:
    words: list[str] = []
    with emulated(cut_rate=1, latency_s=0.1) as provider, client_of(provider) as client:
        stream = client.chat.completions.create(**CHAT, stream=True)  # type: ignore[call-overload]
        with pytest.raises(openai.APIConnectionError) as broken:
            words.extend(chunk.choices[0].delta.content for chunk in stream)
        assert "incomplete chunked read" in str(broken.value.__cause__)
        with pytest.raises(openai.APIConnectionError):
            client.chat.completions.create(**CHAT)  # type: ignore[call-overload]
        seen = stats(provider)
    assert 5 <= len(words) <= 12
    assert (seen["cut"], seen["answered"], seen["in_flight"]) == (2, 0, 0)


def test_a_call_that_hangs_keeps_its_place_until_its_client_leaves() -> None:
    with emulated(hang_rate=1, quota=1) as provider:
        with client_of(provider) as client, pytest.raises(openai.APITimeoutError):
            client.chat.completions.create(**CHAT, timeout=0.3)  # type: ignore[call-overload]
        deadline_s = time.monotonic() + 5
        while stats(provider)["in_flight"] and time.monotonic() < deadline_s:
            pass
        assert (stats(provider)["hung"], stats(provider)["in_flight"]) == (1, 0)


def test_a_call_that_hangs_is_dropped_in_the_end() -> None:
    with emulated(hang_rate=1, hang_s=0.1) as provider, client_of(provider) as client:
        with pytest.raises(openai.APIConnectionError) as ended:
            client.chat.completions.create(**CHAT)  # type: ignore[call-overload]
        assert not isinstance(ended.value, openai.APITimeoutError)
        assert stats(provider)["hung"] == 1


def test_refusals_and_5xx_take_their_own_time() -> None:
    with emulated(quota=0, refusal_latency_s=0.2) as provider:
        for status in (429, 500):
            began_s = time.monotonic()
            assert chat(provider)[0] == status
            assert 0.2 <= time.monotonic() - began_s < 5
            change(provider, quota=1, error_rate=1, latency_s=9)


def test_every_call_of_a_crowd_among_faults_is_counted_once() -> None:
    with emulated(quota=30, error_rate=0.2, rpm=12_000, burst_s=1, latency_s=0.005, sigma=1) as provider:
        ends = crowd(provider, clients=200, calls=5)
        seen = stats(provider)
    assert seen["calls"] == ends.total() == 1000
    assert seen["answered"] == ends["answered"] and seen["server_errors"] == ends["server_error"]
    assert seen["rejected_concurrency"] == ends["rate_limit_exceeded"]
    assert seen["rejected_requests"] == ends["requests_per_minute_exceeded"]
    assert seen["in_flight_max"] <= 30 and seen["in_flight"] == 0


def test_faults_come_at_their_rates_and_the_same_for_the_same_seed() -> None:
    behaviour = Behaviour(error_rate=0.3, hang_rate=0.1, drop_rate=0.05, cut_rate=0.15)

    def ends(seed: int) -> list[Fault | None]:
        dice = Dice(random.Random(seed))
        return [dice.fault(behaviour) for _ in range(20_000)]

    assert ends(1) == ends(1) != ends(2)
    found = Counter(ends(1))
    for fault, rate in ((Fault.ERROR, 0.3), (Fault.HANG, 0.1), (Fault.DROP, 0.05), (Fault.CUT, 0.15), (None, 0.4)):
        assert found[fault] / 20_000 == pytest.approx(rate, abs=0.02)
    assert Dice(random.Random(1)).fault(Behaviour()) is None


def test_latency_is_lognormal_around_its_median_and_grows_near_the_quota() -> None:
    dice = Dice(random.Random(3))
    behaviour = Behaviour(latency_s=2, sigma=0.5, quota=100, inflation=2, inflation_from=0.8, inflation_full=0.8)
    calm = sorted(dice.latency_s(behaviour, 80) for _ in range(20_000))
    full = sorted(dice.latency_s(behaviour, 81) for _ in range(20_000))
    assert calm[10_000] == pytest.approx(2, rel=0.03) and full[10_000] == pytest.approx(4, rel=0.03)
    assert calm[16_827] == pytest.approx(2 * 2.718281828**0.5, rel=0.05)  # the 84.13th percentile: one sigma up
    assert inflation(Behaviour(quota=0, inflation=5), 1) == 1


def test_calls_take_longer_near_the_quota() -> None:
    with emulated(quota=4, latency_s=0.2, inflation=3, inflation_from=0.25) as provider:
        took_s = []

        def call() -> None:
            began_s = time.monotonic()
            assert chat(provider)[0] == 200
            took_s.append(time.monotonic() - began_s)

        call()
        threads = [threading.Thread(target=call) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert took_s[0] < 0.6 and max(took_s) >= 0.6


def test_a_crash_of_the_emulator_itself_is_a_dropped_call_and_not_a_silent_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(self: Emulator) -> dict[str, int]:
        raise ZeroDivisionError

    with emulated() as provider:
        monkeypatch.setattr(Emulator, "stats", broken)
        with pytest.raises(ConnectionError):
            http(f"{provider.url}/admin/stats")
        assert "an answer failed" in caplog.text
        assert chat(provider)[0] == 200
