"""What a downstream's answer is: an error class for the task layer, and a report for those who protect it.

HTTP clients are recognised by the shape of their errors (a status, a time-out), so that no client is imported here:
httpx, httpx2, openai, requests, urllib3, urllib, http.client, aiohttp, and what derives from Python's own errors.
"""

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from harness.kinds.errors import Cancelled, Permanent, TimedOut, Transient, WorkError, of_status
from harness.policy import ratelimit_headers
from harness.policy.errors import ErrorClass
from harness.policy.permits import Report
from harness.policy.ratelimit_headers import RateHeaders
from harness.policy.retry import RETRY_AFTER_CAP_S

T = TypeVar("T")

OVERLOADED = frozenset({503, 529})
# How providers name a refusal of requests or tokens a minute, as a code or a type of their error.
OF_RATE = frozenset({"requests_per_minute_exceeded", "tokens_per_minute_exceeded", "tokens", "rate_limit_tokens"})
NEVER_FITS = frozenset({"request_too_large", "context_length_exceeded"})
# Where a client keeps the status that it raises an error for, if not as `status_code` of it or of its response.
STATUS_OF = {"HTTPError": "code", "ClientResponseError": "status"}  # urllib, aiohttp
TIME_OUTS = frozenset({"TimeoutException", "APITimeoutError", "Timeout", "TimeoutError"})
BROKEN = frozenset({
    "APIConnectionError", "TransportError", "SSLError",  # openai, httpx
    "ConnectionError", "ChunkedEncodingError",  # requests: none of them is Python's own
    "ClientConnectionError", "ClientPayloadError",  # aiohttp
    "URLError", "NewConnectionError", "ProtocolError",  # urllib, urllib3
    "IncompleteRead", "BadStatusLine",  # http.client
})  # fmt: skip
_FAILURES = frozenset({ErrorClass.TIMEOUT, ErrorClass.SERVER_ERROR, ErrorClass.NETWORK})


def call(fn: Callable[[], T]) -> T:
    """Call once. Raises: RateLimited, TimedOut, Transient, Permanent by what `fn` raised; others pass."""
    try:
        return fn()
    except Exception as error:
        classed = classify(error)
        if classed is None or classed is error:
            raise
        raise classed from error


def classify(error: BaseException) -> WorkError | None:
    """Return the error of work that this exception is, by its HTTP status or kind; None when it tells nothing.

    >>> classify(TimeoutError("read")).error_class
    <ErrorClass.TIMEOUT: 'timeout'>
    >>> classify(ValueError("x")) is None
    True
    """
    if isinstance(error, WorkError):
        return error
    status = _status(error)
    text = f"{type(error).__name__}: {error}"[:500]
    if status is not None:
        if status == 429 and _codes(error) & NEVER_FITS:
            return Permanent(text)  # however long it waits
        classed = of_status(status, text, retry_after_s=headers_of(error).retry_after_s)
        if classed is not None:
            return classed
    names = _names(error)
    text = f"{text}{_cause(error)}"[:500]
    if isinstance(error, TimeoutError) or names & TIME_OUTS or isinstance(getattr(error, "reason", None), TimeoutError):
        return TimedOut(text)
    if isinstance(error, ConnectionError | socket.gaierror) or (status is None and names & BROKEN):
        wrapped = Transient(text)
        wrapped.error_class = ErrorClass.NETWORK
        return wrapped
    return None


def report(
    error: BaseException | None,
    *,
    resource: str,
    tokens: Mapping[str, int] | None,
    latency_s: float,
    heard: RateHeaders,
) -> Report:
    """Return what a call's end tells of its resource. `error`: what left the call, None: nothing did.

    A refusal for load (429, 503, 529) is a drop. What failed at the downstream's door or inside it counts for its
    breaker; what the caller got wrong, or stopped, tells nothing.
    """
    if error is None:
        return Report(outcome="success", resource=resource, tokens=tokens, latency_s=latency_s, headers=heard)
    classed = None if isinstance(error, Cancelled) else classify(error)
    if classed is None:
        return Report(outcome="ignore", resource=resource, tokens=tokens, latency_s=latency_s)
    statuses = [classed.status, *(_status(one) for one in chain(error))]
    status = next((one for one in statuses if one is not None), None)
    answered = [heard, *(headers_of(one) for one in chain(error))]
    said = next((one for one in answered if not one.is_empty), heard)
    retry_after_s = classed.retry_after_s if isinstance(classed.retry_after_s, int | float) else None
    refused = classed.error_class is ErrorClass.RATE_LIMIT
    return Report(
        outcome="drop" if refused or status in OVERLOADED else "ignore",
        resource=resource,
        tokens=tokens,
        retry_after_s=_clamped(retry_after_s if retry_after_s is not None else said.retry_after_s),
        rate=refused and (said.used_up or any(_codes(one) & OF_RATE for one in chain(error))),
        failure=classed.error_class in _FAILURES,
        timed_out=classed.error_class is ErrorClass.TIMEOUT,
        overload=status in OVERLOADED,
        latency_s=latency_s,
        headers=said,
    )


def rates_of(headers: Mapping[str, str]) -> RateHeaders:
    """Return what the headers of an answer say of rates."""
    return ratelimit_headers.read(headers, now_s=time.time())


def headers_of(error: BaseException) -> RateHeaders:
    """Return what the answer that an HTTP client's error holds said of rates."""
    headers = getattr(getattr(error, "response", None), "headers", None)
    if headers is None and _names(error) & STATUS_OF.keys():
        headers = getattr(error, "headers", None)
    if headers is None:
        return ratelimit_headers.NOTHING
    try:
        pairs = {str(name): str(value) for name, value in headers.items()}
    except Exception:  # noqa: BLE001  # an object of somebody's client; it has no headers that could be read
        return ratelimit_headers.NOTHING
    return rates_of(pairs)


def _cause(error: BaseException) -> str:
    """What a client wrapped: `Connection error.` alone tells nobody whether it was refused, cut, or has no name."""
    *_, last = chain(error)
    said = f"{type(last).__name__}: {last}"
    return "" if last is error or str(last) in ("", str(error)) else f" ({said})"


def _clamped(retry_after_s: float | None) -> float:
    # NaN is within no bounds.
    if retry_after_s is None or not retry_after_s >= 0:
        return 0.0
    return min(float(retry_after_s), RETRY_AFTER_CAP_S)


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what it was raised from, a few deep."""
    found: BaseException | None = error
    for _ in range(4):
        if found is None:
            return
        yield found
        found = found.__cause__


def _status(error: BaseException) -> int | None:
    for holder in (error, getattr(error, "response", None)):
        status = getattr(holder, "status_code", None)
        if isinstance(status, int):
            return status
    own = next((getattr(error, name, None) for kind, name in STATUS_OF.items() if kind in _names(error)), None)
    return own if isinstance(own, int) else None


def _names(error: BaseException) -> set[str]:
    return {cls.__name__ for cls in type(error).__mro__}


def _codes(error: BaseException) -> set[str]:
    found = (getattr(error, "code", None), getattr(error, "type", None))
    return {one for one in found if isinstance(one, str)}
