"""What a downstream's answer or silence is, as an error of work. Statuses are classed by `kinds.errors.of_status`."""

import time
from collections.abc import Mapping

from harness.kinds.errors import Permanent, Transient, WorkError, of_status
from harness.policy import ratelimit_headers
from harness.policy.errors import ErrorClass


def error_of_status(status: int, host: str, *, retry_after_s: float | None = None) -> WorkError | None:
    """Return the error that an HTTP status is; None below 400.

    >>> error_of_status(204, "api.example") is None, error_of_status(404, "api.example").error_class
    (True, <ErrorClass.VALIDATION: 'validation'>)
    """
    return of_status(status, f"{host} answered {status}", retry_after_s=retry_after_s)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that Retry-After asks to wait, given as a number or as a date; None when it says nothing.

    >>> retry_after_s({"retry-after": "2"}), retry_after_s({"retry-after": "soon"}), retry_after_s({})
    (2.0, None, None)
    """
    return ratelimit_headers.retry_after_s(headers.get("retry-after", ""), now_s=time.time())


def network_error(text: str) -> Transient:
    """Return the error of a connection that didn't come about or broke."""
    error = Transient(text)
    error.error_class = ErrorClass.NETWORK
    return error


def forbidden(text: str) -> Permanent:
    """Return the error of an address that may not be reached."""
    return Permanent(text, error_class=ErrorClass.PERMISSION)
