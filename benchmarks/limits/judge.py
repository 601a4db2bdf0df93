"""Figures from what the provider saw: pure functions over the rows of its timeline. Seconds since its reset."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SETTLED_S = 10.0  # a use is reached when it holds for so long on average
SETTLED_RATIO = 0.95


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One interval: `quota_s` and `busy_s` are quota and calls in flight, each x time; the rest are counts."""

    begin_s: float
    quota_s: float
    busy_s: float
    calls: int
    accepted: int
    answered: int
    rejected_429: int
    errors: int


def rows_of(told: Mapping[str, Any]) -> list[Row]:
    """Return the rows of /admin/timeline."""
    columns = told["columns"]
    return [Row(**dict(zip(columns, row, strict=True))) for row in told["rows"]]


def between(rows: Sequence[Row], since_s: float, until_s: float) -> list[Row]:
    """Return the rows that begin in [since_s, until_s)."""
    return [row for row in rows if since_s - 1e-6 <= row.begin_s < until_s - 1e-6]


def utilisation(rows: Sequence[Row]) -> float:
    """Return how much of the quota was in use; what was in flight beyond it (when it has fallen) doesn't count."""
    quota_s = sum(row.quota_s for row in rows)
    return round(sum(min(row.busy_s, row.quota_s) for row in rows) / quota_s, 4) if quota_s else 0.0


def rate_429(rows: Sequence[Row]) -> float:
    """Return the share of calls that were answered 429."""
    calls = sum(row.calls for row in rows)
    return round(sum(row.rejected_429 for row in rows) / calls, 5) if calls else 0.0


def per_s(rows: Sequence[Row], every_s: float, of: Callable[[Row], float]) -> float:
    """Return a count by second."""
    return round(sum(map(of, rows)) / (len(rows) * every_s), 3) if rows else 0.0


def followed_s(rows: Sequence[Row], every_s: float, at_s: float, until_s: float) -> float | None:
    """Return the seconds from a step at `at_s` to the end of the first whose use is within 5 % of the quota.

    The simulator's measure (harness.sim.limiter_figures), so that both can be laid side by side. None: none was.
    """
    phase, step = between(rows, at_s, until_s), max(1, round(1 / every_s))
    for n in range(0, len(phase) - step + 1, step):
        second = phase[n : n + step]
        quota_s = sum(row.quota_s for row in second)
        if abs(sum(row.busy_s for row in second) - quota_s) <= (1 - SETTLED_RATIO) * quota_s + 1e-6:
            return float(n // step + 1)
    return None


def settled_s(rows: Sequence[Row], every_s: float, at_s: float, until_s: float) -> float | None:
    """Return how long after a step at `at_s` the use of the new quota was reached; None: not before `until_s`.

    Reached: no more is in flight than the quota and SETTLED_RATIO of it at least, then and on average over the next
    SETTLED_S, or over a quarter of the time where that is shorter.
    """
    phase = between(rows, at_s, until_s)
    width = _width(phase, every_s)
    for n in range(len(phase) - width + 1):
        window = phase[n : n + width]
        now = window[0].busy_s / window[0].quota_s if window[0].quota_s else 0.0
        if SETTLED_RATIO <= now <= 1 + 1e-6 and utilisation(window) >= SETTLED_RATIO:
            return round(max(0.0, window[0].begin_s - at_s), 2)
    return None


def falls_below_s(
    rows: Sequence[Row], every_s: float, at_s: float, until_s: float, most: float, over_s: float
) -> float | None:
    """Return how long after `at_s` no more than `most` calls a second are made, over the next `over_s`."""
    phase = between(rows, at_s, until_s)
    width = max(1, round(over_s / every_s))
    for n in range(len(phase) - width + 1):
        if per_s(phase[n : n + width], every_s, lambda row: row.calls) <= most:
            return round(max(0.0, phase[n].begin_s - at_s), 2)
    return None


def _width(phase: Sequence[Row], every_s: float) -> int:
    return max(1, min(round(SETTLED_S / every_s), len(phase) // 4))


def by_second(rows: Sequence[Row], every_s: float, of: Callable[[Row], float]) -> list[float]:
    """Return a figure for each whole second, as a rate."""
    step = max(1, round(1 / every_s))
    return [per_s(rows[n : n + step], every_s, of) for n in range(0, len(rows) - step + 1, step)]


def at_once(spans: Sequence[tuple[float, float]], since_s: float = 0.0, until_s: float = float("inf")) -> int:
    """Return how many spans overlapped at most within a time; one that ends when another begins doesn't overlap it.

    >>> at_once([(0.0, 2.0), (1.0, 3.0), (2.0, 4.0)]), at_once([(0.0, 2.0), (1.0, 3.0)], 2.0, 9.0)
    (2, 1)
    """
    changes = []
    for begin_s, end_s in spans:
        if end_s > since_s and begin_s < until_s:
            changes += [(max(begin_s, since_s), 1), (min(end_s, until_s), -1)]
    most = now = 0
    for _, step in sorted(changes):
        now += step
        most = max(most, now)
    return most
