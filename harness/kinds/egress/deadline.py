"""One allowance of time for all that an exchange takes: names, connections, redirects, bodies."""

import time
from collections.abc import Callable

from harness.kinds.errors import Permanent, TimedOut

LOOK_S = 0.25  # between two looks whether someone wants the task to stop


class Deadline:
    """`timeout_s` from now. `checkpoint` is asked while waiting, and raises what it raises."""

    __slots__ = ("_at_s", "_checkpoint", "_timeout_s")

    def __init__(self, timeout_s: float, checkpoint: Callable[[], None] | None = None) -> None:
        """Raises: Permanent for a time that makes no sense."""
        if not 0 < timeout_s < 86_400:
            raise Permanent(f"timeout_s: must be above 0 s and below a day, not {timeout_s!r}")
        self._timeout_s = timeout_s
        self._at_s = time.monotonic() + timeout_s
        self._checkpoint = checkpoint

    def left_s(self, what: str) -> float:
        """Return the seconds left, more than 0. Raises: TimedOut saying what took too long."""
        left_s = self._at_s - time.monotonic()
        if left_s <= 0:
            raise TimedOut(f"{what} within {self._timeout_s:g} s")
        return left_s

    def next_s(self, what: str) -> float:
        """Return how long to wait now, before asking again. Raises: TimedOut, and what the checkpoint raises."""
        left_s = self.left_s(what)
        if self._checkpoint is None:
            return left_s
        self._checkpoint()
        return min(left_s, LOOK_S)
