"""Quota, rates and the penalty for hammering through the port, on a clock that is passed."""

import time

import openai
import pytest

from harness.ops.emulator.counters import WorstMinute
from tests.ops.emulator.callers import (
    CHAT,
    SECOND_NS,
    TEXT,
    Clock,
    change,
    chat,
    client_of,
    crowd,
    emulated,
    http,
    stats,
)

PROMPT_TOKENS = -(-len(TEXT) // 4)
TOKENS = 2 * PROMPT_TOKENS  # the answer to CHAT is its whole text


def test_the_rate_of_requests_is_exact_under_200_clients_at_once() -> None:
    clock = Clock()
    with emulated(clock, rpm=600, burst_s=30, quota=1000) as provider:
        assert crowd(provider, clients=200, calls=3) == {"answered": 300, "requests_per_minute_exceeded": 300}
        clock.passes(12.34)
        assert crowd(provider, clients=200, calls=1) == {"answered": 123, "requests_per_minute_exceeded": 77}
        seen = stats(provider)
    assert (seen["worst_minute_requests"], seen["worst_minute_calls"]) == (423, 800)
    assert (seen["rejected_requests"], seen["rejected_429"], seen["accepted"]) == (377, 377, 423)


def test_the_rate_of_tokens_is_exact_under_200_clients_at_once() -> None:
    clock = Clock()
    with emulated(clock, tpm=60 * TOKENS, burst_s=150, quota=1000) as provider:
        assert crowd(provider, clients=200, calls=1) == {"answered": 150, "tokens_per_minute_exceeded": 50}
        seen = stats(provider)
        assert seen["worst_minute_tokens"] == seen["prompt_tokens"] + seen["completion_tokens"] == 150 * TOKENS
        clock.passes(9.999)
        assert crowd(provider, clients=200, calls=1)["answered"] == 9


def test_the_quota_is_exact_under_200_clients_at_once() -> None:
    with emulated(quota=37, latency_s=2.5) as provider:
        assert crowd(provider, clients=200, calls=1) == {"answered": 37, "rate_limit_exceeded": 163}
        seen = stats(provider)
    assert (seen["in_flight_max"], seen["in_flight"], seen["rejected_concurrency"]) == (37, 0, 163)


def test_the_rate_is_kept_on_the_real_clock_too() -> None:
    with emulated(rpm=6000, burst_s=0.5, quota=1000) as provider:
        began_s = time.monotonic()
        ends = crowd(provider, clients=200, calls=20)
        took_s = time.monotonic() - began_s
    assert 50 <= ends["answered"] <= 50 + 100 * took_s + 1
    assert ends.total() == 4000


def test_the_real_client_gets_a_rate_429_of_its_own_code_with_the_true_wait_and_full_headers() -> None:
    clock = Clock()
    with emulated(clock, rpm=60, burst_s=2, tpm=6000) as provider, client_of(provider) as client:
        for left in (1, 0):
            answer = client.chat.completions.with_raw_response.create(**CHAT)  # type: ignore[call-overload]
            assert answer.headers["x-ratelimit-remaining-requests"] == str(left)
        clock.passes(0.3)
        with pytest.raises(openai.RateLimitError) as refused:
            client.chat.completions.create(**CHAT)  # type: ignore[call-overload]
        headers = refused.value.response.headers
        assert (refused.value.code, refused.value.type) == ("requests_per_minute_exceeded", "requests")
        assert (headers["retry-after"], headers["retry-after-ms"]) == ("1", "700")
        assert {name: headers[name] for name in headers if name.startswith("x-ratelimit")} == {
            "x-ratelimit-limit-requests": "60",
            "x-ratelimit-limit-tokens": "6000",
            "x-ratelimit-remaining-requests": "0",
            "x-ratelimit-remaining-tokens": str(200 - 2 * TOKENS + 30),
            "x-ratelimit-reset-requests": "1.7s",
            "x-ratelimit-reset-tokens": "820ms",
        }
        clock.passes(0.7)
        client.chat.completions.create(**CHAT)  # type: ignore[call-overload]


def test_every_answer_to_v1_carries_the_limits_and_admin_does_not() -> None:
    with emulated(quota=1, error_rate=0) as provider:
        v1, admin = provider.base_url, provider.url
        answers = [chat(provider), chat(provider, model=""), http(f"{v1}/models"), http(f"{v1}/nothing", {})]
        answers.append(http(f"{v1}/embeddings", {"model": "m", "input": "x"}))
        change(provider, quota=0)
        answers.append(chat(provider))
        change(provider, quota=1, error_rate=1)
        answers.append(chat(provider))
        assert [status for status, _, _ in answers] == [200, 400, 200, 404, 200, 429, 500]
        names = [
            f"x-ratelimit-{what}-{of}" for what in ("limit", "remaining", "reset") for of in ("requests", "tokens")
        ]
        assert all(headers[name] for _, _, headers in answers for name in names)
        assert "x-ratelimit-limit-requests" not in http(f"{admin}/admin/stats")[2]
        assert stats(provider)["models"] == 1


def test_a_refusal_takes_nothing_from_any_limit() -> None:
    clock = Clock()
    with emulated(clock, rpm=10, tpm=10 * TOKENS, burst_s=60, quota=0) as provider:
        assert crowd(provider, clients=20, calls=1) == {"rate_limit_exceeded": 20}
        change(provider, quota=100, tpm=5 * TOKENS)
        assert crowd(provider, clients=20, calls=1) == {"answered": 5, "tokens_per_minute_exceeded": 15}
        change(provider, tpm=1000 * TOKENS)
        assert crowd(provider, clients=20, calls=1) == {"answered": 5, "requests_per_minute_exceeded": 15}


def test_a_request_larger_than_the_bucket_is_told_so_and_rate_0_lets_none_in() -> None:
    clock = Clock()
    with emulated(clock, tpm=TOKENS - 1, retry_after_s=3) as provider:
        status, answer, headers = chat(provider)
        assert (status, answer["error"]["code"], answer["error"]["type"]) == (429, "request_too_large", "tokens")
        for setting, code in (("tpm", "tokens_per_minute_exceeded"), ("rpm", "requests_per_minute_exceeded")):
            change(provider, **{setting: 0})
            status, answer, headers = chat(provider)
            assert (status, answer["error"]["code"], headers["retry-after"]) == (429, code, "3")
            assert headers[f"x-ratelimit-reset-{answer['error']['type']}"] == "24h0m0s"
        assert stats(provider)["rejected_too_large"] == 1


def test_max_tokens_is_charged_when_the_provider_reckons_so() -> None:
    with emulated(Clock(), tpm=1000, reserve_max_tokens=True) as provider:
        assert chat(provider, max_tokens=500)[2]["x-ratelimit-remaining-tokens"] == str(1000 - PROMPT_TOKENS - 500)
        assert chat(provider, max_tokens=500)[1]["error"]["code"] == "tokens_per_minute_exceeded"
        change(provider, reserve_max_tokens=False)
        assert chat(provider, max_tokens=500)[2]["x-ratelimit-remaining-tokens"] == str(
            1000 - PROMPT_TOKENS - 500 - TOKENS
        )


def test_hammering_prolongs_the_wait_up_to_its_cap_and_patience_ends_it() -> None:
    clock = Clock()
    with emulated(clock, quota=0, retry_after_s=2, penalty_s=5, penalty_max_s=10) as provider:
        waits = []
        for _ in range(4):
            _, answer, headers = chat(provider)
            waits.append((answer["error"]["code"], headers["retry-after-ms"]))
            clock.passes(1)
        assert waits == [
            ("rate_limit_exceeded", "2000"),
            ("retry_after_ignored", "6000"),
            ("retry_after_ignored", "10000"),
            ("retry_after_ignored", "10000"),
        ]
        change(provider, quota=1)
        clock.passes(8.9)
        assert chat(provider)[0] == 429
        clock.passes(5.1)
        assert chat(provider)[0] == 200
        assert stats(provider)["rejected_penalty"] == 4


def test_without_a_penalty_early_calls_cost_nothing() -> None:
    with emulated(Clock(), quota=0, retry_after_s=60) as provider:
        assert chat(provider)[0] == 429
        change(provider, quota=1)
        assert chat(provider)[0] == 200


def test_reset_counts_from_zero_and_leaves_the_buckets_as_full_as_they_are() -> None:
    with emulated(Clock(), rpm=2) as provider:
        assert [chat(provider)[0] for _ in range(3)] == [200, 200, 429]
        after = http(f"{provider.url}/admin/reset", {})[1]
        assert after.pop("quota_now") == 50 and set(after.values()) == {0}
        assert chat(provider)[0] == 429


def test_the_worst_minute_slides_with_the_events() -> None:
    worst = WorstMinute()
    for second, amount in ((0, 5), (59, 2), (59, 3), (60.002, 1), (118, 7), (200, 12)):
        worst.add(round(second * SECOND_NS), amount)
    assert worst.amount_max == 13  # from 59 to 118
