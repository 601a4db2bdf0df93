"""How long the threads of one process have waited for a connection, by resource: over the last minute, and in all.

A bounded window: of more than MOST waits a minute the latest count. Nothing here reads another clock than the one that
is passed or CLOCK_MONOTONIC.
"""

import threading
import time
from collections import defaultdict, deque
from typing import TypedDict

from harness.engine.counts import Counts

WINDOW_S = 60.0
MOST = 4096  # of one resource: 64 KB


class Told(TypedDict):
    """Waits of one resource, in seconds."""

    n: int
    p50_s: float
    p95_s: float
    max_s: float


class Waits:
    """The waits of one process. Safe for threads."""

    def __init__(self) -> None:
        self.counts = Counts()
        self._lock = threading.Lock()
        self._seen: dict[str, deque[tuple[float, float]]] = defaultdict(lambda: deque(maxlen=MOST))

    def note(self, resource: str, waited_s: float, *, what: str, now_s: float | None = None) -> None:
        """Note one wait for `what` (engine.counts): counts.HTTP or counts.DB."""
        self.counts.waited(what, resource, waited_s)
        with self._lock:
            self._seen[resource].append((time.monotonic() if now_s is None else now_s, waited_s))

    def read(self, *, now_s: float | None = None) -> dict[str, Told]:
        """Return what was waited in the last minute, of the resources that anyone waited for."""
        since_s = (time.monotonic() if now_s is None else now_s) - WINDOW_S
        found = {}
        with self._lock:
            for resource, seen in list(self._seen.items()):
                while seen and seen[0][0] < since_s:
                    seen.popleft()
                if not seen:
                    del self._seen[resource]
                    continue
                some = sorted(waited_s for _, waited_s in seen)
                found[resource] = Told(
                    n=len(some), p50_s=_at(some, 0.50), p95_s=_at(some, 0.95), max_s=round(some[-1], 6)
                )
        return found


def _at(some: list[float], share: float) -> float:
    return round(some[min(len(some) - 1, int(share * len(some)))], 6)
