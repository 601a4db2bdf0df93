"""Whether a number of workers was right: pure functions over counts and throughput. Epoch seconds."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

Counts = Sequence[tuple[float, int]]  # (moment, how many from then on), in order
ENOUGH_RATIO = 0.95  # of the best throughput


def at(counts: Counts, at_s: float) -> int:
    """Return how many there were at a moment; 0 before the first.

    >>> at([(10.0, 1), (20.0, 3)], 20.0), at([(10.0, 1)], 5.0)
    (3, 0)
    """
    return next((count for since_s, count in reversed(counts) if since_s <= at_s), 0)


def added(counts: Counts, since_s: float, until_s: float) -> int:
    """Return how many were added within a time, one by one: what left again doesn't make up for it.

    >>> added([(0.0, 1), (10.0, 4), (15.0, 2), (16.0, 3), (99.0, 8)], 5.0, 50.0)
    4
    """
    steps = pairwise([(since_s, at(counts, since_s)), *[one for one in counts if since_s < one[0] <= until_s]])
    return sum(max(0, after - before) for (_, before), (_, after) in steps)


def direction_changes(counts: Counts, since_s: float, until_s: float) -> int:
    """Return how often the number turned from growing to shrinking or back.

    >>> direction_changes([(0.0, 1), (10.0, 4), (20.0, 6), (30.0, 2), (40.0, 5)], 0.0, 50.0)
    2
    """
    steps = pairwise([(since_s, at(counts, since_s)), *[one for one in counts if since_s < one[0] <= until_s]])
    signs = [math.copysign(1, after - before) for (_, before), (_, after) in steps if after != before]
    return sum(one != other for one, other in pairwise(signs))


def best(per_s: Mapping[int, float]) -> int:
    """Return the smallest count that gives 95 % of the best throughput of a sweep.

    >>> best({1: 4.0, 2: 7.9, 3: 9.8, 4: 10.0})
    3
    """
    most = max(per_s.values())
    return min(count for count, found in per_s.items() if found >= ENOUGH_RATIO * most)


def near_after_s(counts: Counts, wanted: int, since_s: float, until_s: float) -> float | None:
    """Return how long after a moment the count was within one of `wanted` and stayed so until the end.

    >>> near_after_s([(0.0, 1), (30.0, 2), (45.0, 4)], 3, 10.0, 90.0), near_after_s([(0.0, 1)], 3, 10.0, 90.0)
    (20.0, None)
    """
    moments = [since_s, *[at_s for at_s, _ in counts if since_s < at_s <= until_s]]
    found = None
    for at_s in reversed(moments):
        if abs(at(counts, at_s) - wanted) > 1:
            break
        found = round(at_s - since_s, 1)
    return found
