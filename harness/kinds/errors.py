"""The errors that a kind may raise on purpose, and those that its context raises into it.

Anything else that leaves a call is classed by `engine.answers` (HTTP status, time-outs) or counts as a bug.
"""

from harness.policy.errors import ErrorClass


class WorkError(Exception):
    """An attempt ends here; `error_class` decides what follows (policy.retry)."""

    error_class = ErrorClass.BUG
    retry_after_s: float | None = None
    status: int | None = None  # of HTTP, where one was answered
    resource = ""  # that failed, when it came out of `ctx.call`


class Transient(WorkError):
    """It may go well later. `retry_after_s` is a floor for the wait, in seconds."""

    error_class = ErrorClass.SERVER_ERROR

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class RateLimited(Transient):
    """A downstream said 429: the task is put back without spending an attempt."""

    error_class = ErrorClass.RATE_LIMIT


class NoPermit(Transient):
    """A resource had no permit for a call, which wasn't made: the task is put back without spending an attempt."""

    error_class = ErrorClass.NO_PERMIT


class TimedOut(Transient):
    """A downstream, or the task itself, took longer than allowed."""

    error_class = ErrorClass.TIMEOUT


class Permanent(WorkError):
    """It will not go well later either: the task fails at once."""

    error_class = ErrorClass.VALIDATION

    def __init__(self, message: str, *, error_class: ErrorClass = ErrorClass.VALIDATION) -> None:
        super().__init__(message)
        self.error_class = error_class


class Unfit(Permanent):
    """Something doesn't fit its schema; `value` is what. The kind's repair function is asked once, or the task fails.

    A kind raises it (or pydantic's ValidationError) for what a model or a tool gave; Harness does for a kind's result.
    """

    def __init__(self, message: str, *, value: object = None) -> None:
        super().__init__(message)
        self.value = value


def of_status(status: int, text: str, *, retry_after_s: float | None = None) -> WorkError | None:
    """Return the error that an HTTP status is, with this text; None below 400. The one place where a status is classed.

    >>> of_status(204, "x") is None, of_status(404, "x").error_class, of_status(504, "x").error_class
    (True, <ErrorClass.VALIDATION: 'validation'>, <ErrorClass.TIMEOUT: 'timeout'>)
    """
    if status < 400:
        return None
    error = _of_status(status, text, retry_after_s)
    error.status = status
    return error


def _of_status(status: int, text: str, retry_after_s: float | None) -> WorkError:
    if status in (429, 529):  # 529: overloaded, as some providers say it
        return RateLimited(text, retry_after_s=retry_after_s)
    if status in (401, 403, 407):
        return Permanent(text, error_class=ErrorClass.PERMISSION)
    if status in (408, 504):
        return TimedOut(text)
    if status >= 500:
        return Transient(text, retry_after_s=retry_after_s)
    return Permanent(text)


class Cancelled(BaseException):
    """Raised into a kind at a checkpoint when the task is to be cancelled, paused or drained.

    A BaseException, so that a kind's `except Exception` does not swallow a person's wish.
    """


class Parked(BaseException):
    """Raised into a kind whose children haven't ended: the task leaves its slot, and comes back here when they have.

    A BaseException, so that a kind's `except Exception` does not go on without them.
    """

    def __init__(self, children: int) -> None:
        super().__init__(f"it waits for {children:,} {'child' if children == 1 else 'children'}")
        self.children = children


class StepMismatch(BaseException):
    """Raised into a kind whose steps aren't those that an earlier attempt recorded: the task is held, hold `version`.

    A BaseException, so that a kind's `except Exception` does not go on with the wrong steps.
    """


class Asked(BaseException):
    """Raised into a kind that asks people: the attempt ends here, without a slot held until somebody has decided.

    A BaseException, so that a kind's `except Exception` does not go on without the answer.
    """

    def __init__(self, ordinal: int, prompt: str, timeout_s: float | None) -> None:
        super().__init__(prompt)
        self.ordinal = ordinal
        self.prompt = prompt
        self.timeout_s = timeout_s
