"""Who says how many workers there should be: the product's `manage.py autoscale`, or the length of Celery's queue.

The expert's rule is what guides to KEDA and the HPA recommend: so many messages a replica, at once upwards, and down to
no less than the most that was asked for in the last five minutes.
"""

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import redis

from benchmarks.stage import Stage

EVERY_S = 15.0
MESSAGES_A_WORKER = 20
STEADY_S = 300.0  # the stabilisation window of an HPA, downwards


@dataclass(frozen=True, slots=True)
class Advice:
    """How many workers, what binds, and why. `holds`: nobody is added meanwhile, whatever is desired."""

    desired: int
    binds: str
    why: str
    holds: bool = False

    def same(self, other: "Advice") -> bool:
        """Whether it says the same but for the numbers in its reason."""
        return (self.desired, self.binds, self.holds) == (other.desired, other.binds, other.holds)


def harness(stage: Stage, pool: str) -> Advice:
    """Ask the product once. Raises: Unavailable when it fails."""
    told = json.loads(stage.run([sys.executable, "manage.py", "autoscale", "--once", "--json"]))
    return read(told, pool)


def read(told: Any, pool: str) -> Advice:
    """Return the advice on one pool from what `autoscale --once --json` prints."""
    row: Mapping[str, Any] | None = next((one for one in told["pools"] if one["pool"] == pool), None)
    if row is None:  # nobody has judged yet
        return Advice(0, "none", "no advice yet", holds=True)
    return Advice(int(row["desired"]), str(row["binds"]), str(row["reason"]), bool(row["holds"]))


@dataclass(slots=True)
class ByLength:
    """Celery's expert: a worker for so many messages."""

    least: int
    most: int
    _asked: list[tuple[float, int]] = field(default_factory=list)

    def desired(self, waiting: int, now_s: float) -> Advice:
        """Return the count for a queue of this length.

        >>> rule = ByLength(least=1, most=8)
        >>> [rule.desired(n, at_s).desired for n, at_s in ((0, 0.0), (90, 15.0), (0, 30.0), (0, 400.0))]
        [1, 5, 5, 1]
        """
        wanted = min(self.most, max(self.least, math.ceil(waiting / MESSAGES_A_WORKER)))
        self._asked = [(at_s, count) for at_s, count in self._asked if at_s > now_s - STEADY_S] + [(now_s, wanted)]
        return Advice(max(count for _, count in self._asked), "length", f"{waiting} messages")


def queue_length(url: str, queue: str) -> int:
    """Return how many messages of a queue wait in the broker."""
    with redis.Redis.from_url(url) as client:
        return int(client.llen(queue))
