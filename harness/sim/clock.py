"""Virtual time: a heap of what happens when. At the same second, what was planned first happens first."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

Act = Callable[[Any], None]


class Clock:
    """The time and what is still to happen."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._heap: list[tuple[float, int, Act, Any, bool]] = []
        self._number = 0
        self._idle = 0

    def at(self, at_s: float, act: Act, what: Any = None) -> None:
        """Do something then."""
        self._number += 1
        heappush(self._heap, (at_s, self._number, act, what, False))

    def beat(self, after_s: float, act: Act) -> None:
        """Do something later that only looks after the rest: when nothing else is to happen, it needn't."""
        self._number += 1
        self._idle += 1
        heappush(self._heap, (self.now_s + after_s, self._number, act, None, True))

    def busy(self) -> bool:
        """Whether anything but beats is still to happen."""
        return len(self._heap) > self._idle

    def step(self, until_s: float) -> tuple[Act, Any] | None:
        """Go to the next thing and return it; None when nothing happens any more, or not until then."""
        heap = self._heap
        if len(heap) <= self._idle or heap[0][0] > until_s:
            return None
        self.now_s, _, act, what, beats = heappop(heap)
        self._idle -= beats
        return act, what

    def next_s(self) -> float | None:
        """When the next thing happens; None when nothing does any more."""
        return self._heap[0][0] if len(self._heap) > self._idle else None

    def pop(self) -> tuple[Act, Any]:
        """Go to the next thing and return it."""
        self.now_s, _, act, what, beats = heappop(self._heap)
        self._idle -= beats
        return act, what
