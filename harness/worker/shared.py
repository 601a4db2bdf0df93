"""Sixteen bytes that a prefork parent shares with its children: the last beat, and whether to drain or stop.

The parent beats for all of them; a child fences itself by the same clock without a connection of its own for it.
Each value is written by the parent alone, in one aligned store. Fork keeps the mapping; nothing is ever freed.
"""

import ctypes
import mmap

RUN, DRAIN, STOP = 0, 1, 2


class Shared:
    """What the parent tells its children. `order` goes from RUN to DRAIN to STOP, never back."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 16)
        self._beat = ctypes.c_double.from_buffer(self._memory, 0)
        self._order = ctypes.c_int64.from_buffer(self._memory, 8)

    @property
    def beat_s(self) -> float:
        """CLOCK_BOOTTIME at the start of the last beat that committed, in seconds."""
        return self._beat.value

    @beat_s.setter
    def beat_s(self, started_s: float) -> None:
        self._beat.value = started_s

    @property
    def order(self) -> int:
        """RUN, DRAIN (no new work, cooperative kinds return) or STOP (fence, hand back, exit)."""
        return self._order.value

    def advance(self, order: int) -> None:
        """Raise the order; a lower one is ignored."""
        self._order.value = max(order, self._order.value)
