"""One call to a downstream: never sent twice, and its error turned into an error class.

HTTP clients are recognised by the shape of their errors (a status, a time-out), so that no client is imported here.
"""

import socket
from collections.abc import Callable
from typing import TypeVar

from harness.kinds.errors import TimedOut, Transient, WorkError, of_status
from harness.policy.errors import ErrorClass

T = TypeVar("T")


def call(fn: Callable[[], T]) -> T:
    """Call once. Raises: RateLimited, TimedOut, Transient, Permanent by what `fn` raised; others pass."""
    try:
        return fn()
    except WorkError:
        raise
    except Exception as error:
        classed = classify(error)
        if classed is None:
            raise
        raise classed from error


def classify(error: Exception) -> WorkError | None:
    """Return the error of work that this exception is, by its HTTP status or kind; None when it tells nothing.

    >>> classify(TimeoutError("read")).error_class
    <ErrorClass.TIMEOUT: 'timeout'>
    >>> classify(ValueError("x")) is None
    True
    """
    status = _status(error)
    text = f"{type(error).__name__}: {error}"[:500]
    if status is not None:
        classed = of_status(status, text, retry_after_s=_retry_after_s(error))
        if classed is not None:
            return classed
    names = {cls.__name__ for cls in type(error).__mro__}
    if isinstance(error, TimeoutError | socket.timeout) or names & {"TimeoutException", "APITimeoutError"}:
        return TimedOut(text)
    if isinstance(error, ConnectionError) or names & {"APIConnectionError", "TransportError"}:
        wrapped = Transient(text)
        wrapped.error_class = ErrorClass.NETWORK
        return wrapped
    return None


def _status(error: Exception) -> int | None:
    for holder in (error, getattr(error, "response", None)):
        status = getattr(holder, "status_code", None)
        if isinstance(status, int):
            return status
    return None


def _retry_after_s(error: Exception) -> float | None:
    headers = getattr(getattr(error, "response", None), "headers", None)
    value = headers.get("retry-after") if headers is not None else None
    try:
        seconds = float(value) if value is not None else None
    except ValueError:
        return None  # a date: the back-off serves
    return seconds if seconds is not None and 0 <= seconds < 86_400 * 365 else None
