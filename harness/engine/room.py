"""Room for connections: a semaphore of a client pool's size in front of it, whose waits are measured.

Without it a full pool would let callers wait inside the client, unseen, and call that a time-out of the downstream.
"""

import threading
import time
from collections.abc import Callable

LOOK_S = 0.25


class Room:
    """Room for so many connections of one process to one downstream."""

    __slots__ = ("_freed", "_note", "_size", "in_use", "waiting")

    def __init__(self, size: int, note: Callable[[float], None]) -> None:
        """`note` gets the seconds of each wait, also when there was none."""
        self._size = size
        self._note = note
        self._freed = threading.Condition()
        self.in_use = 0
        self.waiting = 0

    def enter(self, look: Callable[[], None]) -> None:
        """Take a place; `look` is called while waiting. Raises: what `look` raises, without a place then."""
        began_s = time.monotonic()
        with self._freed:
            if self.in_use < self._size:
                self.in_use += 1
                waited = False
            else:
                waited = True
                self.waiting += 1
                try:
                    while self.in_use >= self._size:
                        self._freed.wait(LOOK_S)
                        look()
                    self.in_use += 1
                finally:
                    self.waiting -= 1
        self._note(time.monotonic() - began_s if waited else 0.0)

    def leave(self) -> None:
        """Give a place back."""
        with self._freed:
            self.in_use -= 1
            self._freed.notify()
