"""The errors of Harness and the classes of errors that work can end in.

Every error has a stable `code`; `web.api.problems` maps the code to an HTTP status, the command line to an
exit. The message is for the person who can mend the cause: it names the field and the fix.
"""

from enum import StrEnum


class HarnessError(Exception):
    """Something Harness refuses or cannot do, told so that the caller can act."""

    code = "error"

    def __init__(self, message: str, *, field: str | None = None, **facts: object) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.facts = facts


class Refused(HarnessError):
    """A limit or a right says no."""

    code = "refused"


class Conflict(HarnessError):
    """The request contradicts what is already there."""

    code = "conflict"


class Invalid(HarnessError):
    """A value does not fit; `field` names it."""

    code = "invalid"


class NotFound(HarnessError):
    """There is no such thing, or not for this tenant."""

    code = "not_found"


class TooLarge(Invalid):
    """A value is larger than its limit; `field` names it."""

    code = "too_large"


class Unavailable(HarnessError):
    """A server that Harness needs does not answer; try again later."""

    code = "unavailable"


class ErrorClass(StrEnum):
    """Why an attempt did not succeed (row B6); `retry.VERDICTS` says what follows from each."""

    RATE_LIMIT = "rate_limit"
    NO_PERMIT = "no_permit"
    TIMEOUT = "timeout"
    VALIDATION = "validation"
    PERMISSION = "permission"
    SERVER_ERROR = "server_error"
    NETWORK = "network"
    BUG = "bug"
    LOST = "lost"
