"""Summaries of runs: quantiles of a sample, and ratios of neighbours in an interleaved series. Pure."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """The median of n values with the least and the most; the unit is that of the values."""

    median: float
    least: float
    most: float
    n: int

    def as_json(self) -> dict[str, float | int]:
        """Return the spread as plain values."""
        return {"median": self.median, "min": self.least, "max": self.most, "n": self.n}

    def __str__(self) -> str:
        return f"{_short(self.median)} [{_short(self.least)}-{_short(self.most)}] x{self.n}"


def spread(values: Sequence[float]) -> Spread | None:
    """Summarise values; None when there are none.

    >>> str(spread([3.0, 1.0, 2.0]))
    '2.00 [1.00-3.00] x3'
    """
    if not values:
        return None
    return Spread(
        median=statistics.median(values),
        least=min(values),
        most=max(values),
        n=len(values),
    )


def quantile(values: Sequence[float], q: float) -> float:
    """Return the smallest value that at least the share `q` of all values does not exceed.

    >>> quantile([4, 1, 3, 2], 0.5), quantile([4, 1, 3, 2], 0.99)
    (2, 4)
    """
    ordered = sorted(values)
    return ordered[max(0, -int(-q * len(ordered) // 1) - 1)]


def pairwise(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Spread | None:
    """Summarise ours / theirs over the rounds in which both have a value.

    Neighbours of one round saw the same machine, so their ratio stands when its speed drifts.

    >>> str(pairwise({0: 4.0, 1: 9.0}, {0: 2.0, 1: 3.0, 2: 5.0}))
    '2.50 [2.00-3.00] x2'
    """
    return spread([ours[r] / theirs[r] for r in sorted(ours.keys() & theirs.keys()) if theirs[r] > 0])


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"
