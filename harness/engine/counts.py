"""What one process has counted since it began, for the metrics: how long its threads waited, by resource.

Totals only grow, so whoever reads them twice knows what came between (policy.tally.grown). Safe for threads.
"""

import threading
from bisect import bisect_left
from collections import defaultdict

from harness.policy.tally import PASSAGE_S, Values

# A wait before a downstream: for the permit of a call, for a connection to make it on, for one to a target database.
PERMIT, HTTP, DB = "permit_wait_time", "http_pool_wait", "db_pool_wait"


class Counts:
    """The totals of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waits: dict[str, dict[str, Values]] = defaultdict(dict)

    def waited(self, what: str, resource: str, waited_s: float) -> None:
        """Count one wait."""
        with self._lock:
            values = self._waits[what].get(resource)
            if values is None:
                values = self._waits[what][resource] = [0.0] * (len(PASSAGE_S) + 2)
            values[bisect_left(PASSAGE_S, waited_s)] += 1.0
            values[-1] += waited_s

    def read(self) -> dict[str, dict[str, Values]]:
        """Return, by what was waited for and resource, the numbers for each bound and the sum."""
        with self._lock:
            return {
                what: {resource: [*values[:-1], round(values[-1], 6)] for resource, values in of.items()}
                for what, of in self._waits.items()
            }
