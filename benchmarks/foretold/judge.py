"""How true forecasts were: pure functions. A forecast is made at a moment; all its figures are seconds from there."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from benchmarks.statistics_of_runs import quantile

T = TypeVar("T")
LEAST_S = 1.0  # of a wait whose P90/P50 is looked at: that of one of milliseconds says nothing


@dataclass(frozen=True, kw_only=True, slots=True)
class Told:
    """A forecast, and what came of it. `plain_s`: backlog / rate at that moment; `age_s`: its age."""

    p50_s: float
    p90_s: float
    actual_s: float
    plain_s: float
    priority: int
    age_s: float = 0.0


def coverage(told: Sequence[Told], which: str) -> float | None:
    """Return the share of truths that were no later than `p50_s` or `p90_s`. None: nothing was told."""
    return round(sum(one.actual_s <= getattr(one, which) for one in told) / len(told), 4) if told else None


def pinball(forecast_s: float, actual_s: float, tau: float) -> float:
    """Return the pinball loss of a forecast of the quantile tau.

    >>> pinball(10.0, 14.0, 0.9), pinball(10.0, 6.0, 0.5)
    (3.6, 2.0)
    """
    over_s = actual_s - forecast_s
    return round(max(tau * over_s, (tau - 1) * over_s), 6)


def loss_s(told: Iterable[Told], *, plain: bool = False) -> float | None:
    """Return the mean pinball loss of P50 and P90. `plain`: of backlog / rate, which is one number for both."""
    losses = [
        pinball(one.plain_s if plain else forecast_s, one.actual_s, tau)
        for one in told
        for forecast_s, tau in ((one.p50_s, 0.5), (one.p90_s, 0.9))
    ]
    return round(sum(losses) / len(losses), 4) if losses else None


def width(told: Iterable[Told]) -> float | None:
    """Return the median of P90 / P50, where P50 is a wait at all."""
    ratios = [one.p90_s / one.p50_s for one in told if one.p50_s >= LEAST_S]
    return round(quantile(ratios, 0.5), 3) if ratios else None


def figures(told: Sequence[Told]) -> dict[str, Any]:
    """Return all of it, and by priority."""
    ours_s, plain_s = loss_s(told), loss_s(told, plain=True)
    return {
        "n": len(told),
        "p50_coverage": coverage(told, "p50_s"),
        "p90_coverage": coverage(told, "p90_s"),
        "p90_over_p50": width(told),
        "pinball_s": ours_s,
        "plain_pinball_s": plain_s,
        "pinball_vs_plain": round(ours_s / plain_s, 4) if ours_s is not None and plain_s else None,
        "age_p95_s": round(quantile([one.age_s for one in told], 0.95), 2) if told else None,
        "by_priority": {
            f"P{priority}": {
                "n": len(some),
                "p50_coverage": coverage(some, "p50_s"),
                "p90_coverage": coverage(some, "p90_s"),
            }
            for priority in sorted({one.priority for one in told})
            if (some := [one for one in told if one.priority == priority])
        },
    }


def plain_s(
    at_s: float, submitted_s: Mapping[T, float], started_s: Mapping[T, float], ended_s: Sequence[float], over_s: float
) -> float | None:
    """Return backlog / rate at a moment: what waits then over what has ended a second before. None: nothing has.

    >>> plain_s(100.0, {"a": 50.0, "b": 60.0, "c": 70.0}, {"a": 80.0, "b": 120.0}, [95.0, 99.0], 20.0)
    20.0
    """
    waiting = sum(since_s <= at_s and started_s.get(task, float("inf")) > at_s for task, since_s in submitted_s.items())
    ended = sum(at_s - over_s < one <= at_s for one in ended_s)
    return waiting * over_s / ended if ended else None
