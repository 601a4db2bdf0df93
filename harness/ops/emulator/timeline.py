"""What the provider saw, interval by interval: how much of its quota was in use, and the calls by their ends.

Exact, not sampled: whoever changes a counter calls `advance` first, so the time until then is charged as it was.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from harness.ops.emulator.counters import Counters

EVERY_NS = 250_000_000
ROWS_KEPT = 30_000  # two hours; the oldest go first
COUNTED = ("calls", "accepted", "answered", "rejected_429", "errors")
COLUMNS = ("begin_s", "quota_s", "busy_s", *COUNTED)


class Timeline:
    """Rows of COLUMNS, one for each EVERY_NS. Only the event loop writes here.

    `begin_s` counts from the start or the last reset; `quota_s` is quota x time, `busy_s` calls in flight x time, the
    rest how many in that interval.
    """

    def __init__(self, now_ns: int) -> None:
        self._began_ns = self._at_ns = now_ns
        self._rows: deque[tuple[float, ...]] = deque(maxlen=ROWS_KEPT)
        self._quota_s = self._busy_s = 0.0
        self._before = (0,) * len(COUNTED)

    def advance(self, now_ns: int, counters: Counters, quota_at: Callable[[int], int]) -> None:
        """Charge the time until now with what is in flight; `quota_at` tells the quota at a moment."""
        while self._at_ns < now_ns:
            end_ns = self._began_ns + ((self._at_ns - self._began_ns) // EVERY_NS + 1) * EVERY_NS
            until_ns = min(now_ns, end_ns)
            passed_s = (until_ns - self._at_ns) / 1e9
            self._quota_s += quota_at(self._at_ns) * passed_s
            self._busy_s += counters.in_flight * passed_s
            self._at_ns = until_ns
            if until_ns == end_ns:
                self._close(end_ns, counters)

    def told(self) -> dict[str, Any]:
        """Return the whole intervals so far; `passed_s` says how long ago the first began."""
        return {
            "every_s": EVERY_NS / 1e9,
            "passed_s": (self._at_ns - self._began_ns) / 1e9,
            "columns": COLUMNS,
            "rows": [tuple(round(value, 6) for value in row) for row in self._rows],
        }

    def _close(self, end_ns: int, counters: Counters) -> None:
        now = tuple(getattr(counters, name) for name in COUNTED)
        counted = (after - before for after, before in zip(now, self._before, strict=True))
        begin_s = (end_ns - EVERY_NS - self._began_ns) / 1e9
        self._rows.append((begin_s, self._quota_s, self._busy_s, *counted))
        self._quota_s = self._busy_s = 0.0
        self._before = now
