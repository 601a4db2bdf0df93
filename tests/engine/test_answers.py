"""What an answer is for the task, and what it is for those who protect the resource."""

import socket
import ssl
from typing import Any

import pytest

from harness.engine.answers import classify, report
from harness.kinds.errors import Cancelled, Permanent, RateLimited, TimedOut, Transient, of_status
from harness.policy.permits import Report
from harness.policy.ratelimit_headers import NOTHING, RateHeaders


class Answered(Exception):
    """What an HTTP client raises."""

    def __init__(self, status: int, headers: Any = None, **more: Any) -> None:
        super().__init__(f"status {status}")
        self.status_code = status
        self.response = type("Response", (), {"headers": headers or {}, "status_code": status})()
        for name, value in more.items():
            setattr(self, name, value)


def told(error: BaseException | None, heard: RateHeaders = NOTHING) -> Report:
    return report(error, resource="r", tokens=None, latency_s=1.0, heard=heard)


@pytest.mark.parametrize(
    ("error", "outcome", "failure"),
    [
        (None, "success", False),
        (Answered(429), "drop", False),
        (Answered(529), "drop", False),
        (Answered(503), "drop", True),
        (Answered(500), "ignore", True),
        (Answered(408), "ignore", True),
        (Answered(400), "ignore", False),
        (Answered(401), "ignore", False),
        (TimeoutError("read"), "ignore", True),
        (ConnectionResetError("reset"), "ignore", True),
        (ssl.SSLError(1, "wrong version number"), "ignore", True),
        (socket.gaierror(-2, "Name or service not known"), "ignore", True),
        (RateLimited("429"), "drop", False),
        (of_status(503, "busy"), "drop", True),
        (TimedOut("late"), "ignore", True),
        (Transient("isn't JSON"), "ignore", True),
        (Permanent("404"), "ignore", False),
        (Cancelled("cancel"), "ignore", False),
        (ValueError("a bug"), "ignore", False),
        (KeyboardInterrupt(), "ignore", False),
    ],
)
def test_each_answer_is_one_outcome_and_only_the_downstreams_failures_count_for_its_breaker(
    error: BaseException | None, outcome: str, failure: bool
) -> None:
    found = told(error)
    assert (found.outcome, found.failure) == (outcome, failure)
    assert found.timed_out == isinstance(error, TimeoutError | TimedOut) or isinstance(error, Answered)


@pytest.mark.parametrize(
    ("error", "heard", "rate"),
    [
        (Answered(429), NOTHING, False),
        (Answered(429), RateHeaders(limit_requests=9, remaining_requests=0), True),
        (Answered(429), RateHeaders(limit_requests=9, remaining_requests=1), False),
        (Answered(429, {"x-ratelimit-remaining-tokens": "0"}), NOTHING, True),
        (Answered(429, code="tokens_per_minute_exceeded"), NOTHING, True),
        (Answered(429, type="tokens"), NOTHING, True),
        (Answered(429, code="rate_limit_exceeded", type="requests"), NOTHING, False),
        (Answered(500, {"x-ratelimit-remaining-tokens": "0"}), NOTHING, False),
    ],
)
def test_a_429_is_of_the_rate_by_an_empty_bucket_or_a_known_code(
    error: Answered, heard: RateHeaders, rate: bool
) -> None:
    assert told(error, heard).rate == rate


def test_what_a_kind_made_of_an_error_keeps_what_the_client_knew() -> None:
    client = Answered(429, {"retry-after": "9", "x-ratelimit-remaining-requests": "0"})
    try:
        raise RateLimited("as I say") from client
    except RateLimited as error:
        found = told(error)
    assert found.rate and found.retry_after_s == 9.0 and found.outcome == "drop"


@pytest.mark.parametrize("odd", [float("nan"), -1.0, float("inf"), "soon", None])
def test_an_odd_retry_after_of_a_kind_is_none_or_clamped(odd: Any) -> None:
    error = RateLimited("429")
    error.retry_after_s = odd
    assert 0.0 <= told(error).retry_after_s <= 900.0


def test_headers_that_cannot_be_read_are_none() -> None:
    class Trap:
        def items(self) -> None:
            raise RuntimeError("closed")

    assert told(Answered(429, Trap())).headers == NOTHING
    assert told(Answered(429, 7)).headers == NOTHING


def test_a_certificate_that_is_not_valid_and_a_handshake_that_breaks_are_of_the_network_when_a_client_says_so() -> None:
    class APIConnectionError(Exception):
        """As the client of OpenAI calls it."""

    error = APIConnectionError("Connection error.")
    error.__cause__ = ssl.SSLCertVerificationError("self-signed certificate")
    classed = classify(error)
    assert classed is not None and str(classed.error_class) == "network"


def test_what_a_client_wrapped_is_told_with_its_error_so_that_refused_and_cut_can_be_told_apart() -> None:
    class APIConnectionError(Exception):
        """As the client of OpenAI calls it."""

    error = APIConnectionError("Connection error.")
    error.__cause__ = OSError("no route")
    error.__cause__.__cause__ = ConnectionRefusedError(111, "Connection refused")
    assert str(classify(error)) == (
        "APIConnectionError: Connection error. (ConnectionRefusedError: [Errno 111] Connection refused)"
    )
    error.__cause__ = None
    assert str(classify(error)) == "APIConnectionError: Connection error."
