"""What an answer is for the task, and what it is for those who protect the resource."""

import http.client
import socket
import ssl
import urllib.error
from email.message import Message
from typing import Any

import pytest
import requests
import urllib3.exceptions

from harness.engine.answers import classify, report
from harness.kinds.errors import Cancelled, Permanent, RateLimited, TimedOut, Transient, of_status
from harness.policy.errors import ErrorClass
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


def urllib_error(status: int, **headers: str) -> urllib.error.HTTPError:
    said = Message()
    for name, value in headers.items():
        said[name.replace("_", "-")] = value
    return urllib.error.HTTPError("http://a", status, "no", said, None)


def requests_error(status: int) -> requests.HTTPError:
    answer = requests.Response()
    answer.status_code = status
    answer.headers["Retry-After"] = "7"
    return requests.HTTPError("no", response=answer)


class ClientResponseError(Exception):
    """As aiohttp calls it."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status
        self.headers = {"Retry-After": "7"}


class ClientPayloadError(Exception):
    """As aiohttp calls an answer that broke off."""


@pytest.mark.parametrize(
    ("error", "error_class"),
    [
        (urllib_error(429, Retry_After="7"), ErrorClass.RATE_LIMIT),
        (urllib_error(503, Retry_After="7"), ErrorClass.SERVER_ERROR),
        (urllib_error(403), ErrorClass.PERMISSION),
        (urllib.error.URLError(ConnectionRefusedError(111, "refused")), ErrorClass.NETWORK),
        (urllib.error.URLError(TimeoutError("timed out")), ErrorClass.TIMEOUT),
        (http.client.IncompleteRead(b"half"), ErrorClass.NETWORK),
        (requests_error(429), ErrorClass.RATE_LIMIT),
        (requests_error(500), ErrorClass.SERVER_ERROR),
        (requests.ReadTimeout("late"), ErrorClass.TIMEOUT),
        (requests.ConnectTimeout("late"), ErrorClass.TIMEOUT),
        (requests.ConnectionError("refused"), ErrorClass.NETWORK),
        (requests.exceptions.ChunkedEncodingError("half"), ErrorClass.NETWORK),
        (urllib3.exceptions.ProtocolError("half"), ErrorClass.NETWORK),
        (ClientResponseError(429), ErrorClass.RATE_LIMIT),
        (ClientPayloadError("half"), ErrorClass.NETWORK),
    ],
)
def test_what_other_clients_raise_is_known_by_its_shape(error: Exception, error_class: ErrorClass) -> None:
    classed = classify(error)
    assert classed is not None and classed.error_class is error_class
    found = told(error)
    assert found.failure == (error_class in (ErrorClass.SERVER_ERROR, ErrorClass.NETWORK, ErrorClass.TIMEOUT))
    if error_class is ErrorClass.RATE_LIMIT:
        assert classed.retry_after_s == found.retry_after_s == 7.0


def test_a_number_named_code_is_a_status_only_where_a_client_means_one() -> None:
    class ConnectionClosed(Exception):
        """As a client of web sockets says why: 1006 is no status."""

        code = 1006

    assert classify(ConnectionClosed()) is None
    assert classify(urllib_error(304)) is None, "an answer, and no failure of the network"
