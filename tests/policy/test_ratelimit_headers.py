"""What a provider's headers say is usable or nothing, whatever they hold."""

import math
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness.policy.ratelimit_headers import (
    COUNT_MOST,
    NOTHING,
    RESET_MOST_S,
    RateHeaders,
    read,
    retry_after_s,
)
from harness.policy.retry import RETRY_AFTER_CAP_S

NAMES = [
    *(f"x-ratelimit-{what}-{unit}" for what in ("limit", "remaining", "reset") for unit in ("requests", "tokens")),
    "retry-after",
    "retry-after-ms",
    "X-RateLimit-Limit-Requests",
    "content-type",
]
NUMBERS = st.one_of(
    st.integers().map(str),
    st.floats().map(str),
    st.sampled_from(["", "0", "-1", "+5", " 7 ", "1e9", "1e99", "NaN", "inf", "-0", "5,6", "٣", "²", "0x10", "1_000"]),
    st.text(st.characters(max_codepoint=255), max_size=80),
)
DURATIONS = st.builds(lambda h, m, s: f"{h}h{m}m{s}s", st.integers(0, 99), st.integers(0, 59), st.integers(0, 59))


@given(
    headers=st.dictionaries(st.sampled_from(NAMES), st.one_of(NUMBERS, DURATIONS), max_size=10),
    now_s=st.floats(0, 4e9),
)
@example(headers={"retry-after": "9" * 63}, now_s=0.0)
@example(headers={"x-ratelimit-limit-tokens": "0", "x-ratelimit-remaining-tokens": "0"}, now_s=0.0)
def test_whatever_headers_hold_what_is_read_can_be_computed_with(headers: dict[str, str], now_s: float) -> None:
    found = read(headers, now_s=now_s)
    for limit, remaining, reset_s in (
        (found.limit_requests, found.remaining_requests, found.reset_requests_s),
        (found.limit_tokens, found.remaining_tokens, found.reset_tokens_s),
    ):
        assert limit is None or 1 <= limit <= COUNT_MOST
        assert remaining is None or 0 <= remaining <= (COUNT_MOST if limit is None else limit)
        assert reset_s is None or (math.isfinite(reset_s) and 0 <= reset_s <= RESET_MOST_S)
    assert found.retry_after_s is None or 0 <= found.retry_after_s <= RETRY_AFTER_CAP_S


@given(value=st.text(st.characters(max_codepoint=255), max_size=200), now_s=st.floats(0, 4e9))
def test_any_retry_after_is_a_wait_or_nothing(value: str, now_s: float) -> None:
    found = retry_after_s(value, now_s=now_s)
    assert found is None or 0 <= found <= RETRY_AFTER_CAP_S


@given(
    now=st.integers(40_000_000, 4_000_000_000).map(lambda s: datetime.fromtimestamp(s, UTC)),
    ahead_s=st.integers(-100_000, 100_000),
)
def test_a_date_is_the_seconds_until_then(now: datetime, ahead_s: int) -> None:
    at = now + timedelta(seconds=ahead_s)
    expected = float(min(max(ahead_s, 0), int(RETRY_AFTER_CAP_S)))
    for written in (
        format_datetime(at, usegmt=True),
        at.strftime("%a %b %e %H:%M:%S %Y"),
        at.strftime("%d %b %Y %H:%M:%S +0000"),
    ):
        assert retry_after_s(written, now_s=now.timestamp()) == expected


@given(seconds=st.floats(0, 80_000).map(lambda s: round(s, 3)))
def test_a_reset_is_read_as_openai_writes_it_and_as_plain_seconds(seconds: float) -> None:
    ms = round(seconds * 1000)
    minutes, rest_ms = divmod(ms, 60_000)
    hours, minutes = divmod(minutes, 60)
    for written in (f"{hours}h{minutes}m{rest_ms / 1000:.3f}s", f"{ms}ms", f"{seconds:.3f}"):
        found = read({"x-ratelimit-reset-tokens": written}, now_s=0.0).reset_tokens_s
        assert found == pytest.approx(seconds, abs=0.002)


@pytest.mark.parametrize(
    "value", ["-1", "-0.5", "soon", "nan", "inf", "1e400", "", "12 34", "Mon, 99 Foo 2027 00:00:00 GMT"]
)
def test_a_retry_after_that_makes_no_sense_says_nothing(value: str) -> None:
    assert retry_after_s(value, now_s=0.0) is None


def test_a_day_is_a_quarter_of_an_hour_and_the_past_is_now() -> None:
    assert retry_after_s("86400", now_s=0.0) == RETRY_AFTER_CAP_S
    assert retry_after_s("Thu, 01 Jan 2026 00:00:00 GMT", now_s=2e9) == 0.0


def test_the_exact_retry_after_goes_before_the_rounded_one() -> None:
    assert read({"Retry-After": "2", "Retry-After-Ms": "1250"}, now_s=0.0).retry_after_s == 1.25
    assert read({"Retry-After": "2", "Retry-After-Ms": "often"}, now_s=0.0).retry_after_s == 2.0


def test_a_limit_of_nothing_is_no_limit_and_its_bucket_is_not_believed() -> None:
    zero = {"x-ratelimit-limit-requests": "0", "x-ratelimit-remaining-requests": "0"}
    assert read(zero, now_s=0.0) == NOTHING
    assert not read(zero, now_s=0.0).used_up
    left = read({"x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "0"}, now_s=0.0)
    assert left == RateHeaders(limit_requests=60, remaining_requests=0) and left.used_up


def test_other_headers_say_nothing() -> None:
    assert read({"content-type": "text/html", "x-powered-by": "60"}, now_s=0.0).is_empty


def test_headers_of_bytes_are_read_and_those_that_are_no_text_harm_nothing() -> None:
    odd: Any = {b"Retry-After": b"7", "X-RateLimit-Limit-Tokens": 50, "x-ratelimit-remaining-tokens": None, 5: 6}
    found = read(odd, now_s=0.0)
    assert (found.retry_after_s, found.limit_tokens, found.remaining_tokens) == (7.0, 50, None)
