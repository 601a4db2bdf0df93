"""The latency guard: where a downstream slows down instead of refusing, less in flight does as much. Pure.

G1  Latency is normalised (time to the first byte, or seconds per output token; seconds of a call where there is
    neither) and counted in bins of a fixed ratio: the present window of WINDOW_S, and the day (it forgets by the day).
G2  rho = p50 of the window / p20 of the day. Above SLOW in WINDOWS windows in a row: the limit is tried lower. It stays
    lower when throughput fell by at most COST_RATIO, and goes lower still, in larger steps, while rho stays high; else
    it is restored and left alone for REST_S.
G3  rho below FAST: the cap rises by a tenth a window, and is gone at the limit.
G4  Fewer than CALLS_LEAST calls in a window, or DAY_LEAST in the day, say nothing. Never a fixed threshold.

`cap` goes into State.trim. Invariants: floor <= cap <= the limit when it was set; without a baseline there is no cap.
"""

from dataclasses import dataclass, field
from math import log

from harness.policy.limits.state import Reason, State, Terms

LEAST_S = 1e-4
RATIO = 1.15
BINS = 112  # 0.1 ms to ten minutes
WINDOW_S = 30.0
DAY_S = 86_400.0
SLOW = 1.5
FAST = 1.2
WINDOWS = 3
CUTS = (0.9, 0.8, 0.7)
RISE = 1.1
COST_RATIO = 0.03
REST_S = 600.0
CALLS_LEAST = 20
DAY_LEAST = 200
BASE_QUANTILE = 0.2


def _bins() -> list[float]:
    return [0.0] * BINS


@dataclass(slots=True)
class Guard:
    """What is kept of one resource's latency."""

    window_s: float = 0.0  # when the window began
    over: int = 0  # windows in a row above SLOW
    cuts: int = 0  # cuts in a row that were kept
    trial: int = 0  # 1 while a lower cap is tried
    calls_before: float = 0.0  # in the window before the trial
    cap: float = 0.0
    cap_before: float = 0.0
    rest_s: float = 0.0  # no trial before this
    window: list[float] = field(default_factory=_bins)
    day: list[float] = field(default_factory=_bins)


def bin_of(latency_s: float) -> int:
    """Return the bin of a latency.

    >>> bin_of(0.0), bin_of(1.0), bin_of(1.2), bin_of(1e9)
    (0, 65, 67, 111)
    """
    return 0 if latency_s <= LEAST_S else min(BINS - 1, int(log(latency_s / LEAST_S) / log(RATIO)))


def quantile_s(bins: list[float], share: float) -> float:
    """Return the latency below which `share` of the counted calls were; 0 when none was.

    >>> counted = [0.0] * BINS; counted[65] = 4
    >>> round(quantile_s(counted, 0.5), 2)
    0.95
    """
    total = sum(bins)
    if total <= 0:
        return 0.0
    left = share * total
    for index, count in enumerate(bins):
        if count and left <= count:
            return float(LEAST_S * RATIO ** (index + left / count))
        left -= count
    return float(LEAST_S * RATIO**BINS)


def noted(guard: Guard, latency_s: float) -> None:
    """Count a success by its normalised latency."""
    guard.window[bin_of(latency_s)] += 1


def due(guard: Guard, now_s: float) -> bool:
    """Whether the window is over."""
    return now_s - guard.window_s >= WINDOW_S


def turn(guard: Guard, state: State, terms: Terms, now_s: float) -> Reason:
    """End the window: set State.trim and return why it changed. Only when `due`."""
    calls = sum(guard.window)
    base_s = quantile_s(guard.day, BASE_QUANTILE) if sum(guard.day) >= DAY_LEAST else 0.0
    rho = quantile_s(guard.window, 0.5) / base_s if base_s and calls >= CALLS_LEAST else 0.0
    _fold(guard, now_s)
    before = guard.cap
    if not rho:
        guard.over = 0
    else:
        _judge(guard, state, terms, now_s, calls, rho)
    guard.cap = state.trim = min(guard.cap, float(terms.ceiling))
    if guard.cap == before:
        return ""
    return "slow" if guard.cap and (not before or guard.cap < before) else "recovered"


def _judge(guard: Guard, state: State, terms: Terms, now_s: float, calls: float, rho: float) -> None:
    guard.over = guard.over + 1 if rho > SLOW else 0
    if guard.trial:
        guard.trial = 0
        if calls < (1.0 - COST_RATIO) * guard.calls_before:
            guard.cap, guard.cuts, guard.over, guard.rest_s = guard.cap_before, 0, 0, now_s + REST_S
            return
        guard.cuts += 1
    if rho < FAST and guard.cap:
        guard.cuts = 0
        if now_s >= guard.rest_s:
            guard.cap = max(guard.cap + 1.0, RISE * guard.cap // 1)
            if guard.cap >= state.limit:
                guard.cap, guard.rest_s = 0.0, now_s + REST_S
        return
    if rho <= SLOW or now_s < guard.rest_s or (guard.over < WINDOWS and not guard.cuts):
        return
    ratio = CUTS[min(guard.cuts, len(CUTS) - 1)]
    guard.cap_before, guard.calls_before, guard.trial = guard.cap, calls, 1
    guard.cap = max(float(terms.floor), 1.0, ratio * min(guard.cap or state.limit, state.limit) // 1)


def _fold(guard: Guard, now_s: float) -> None:
    kept = max(0.0, 1.0 - min(max(now_s - guard.window_s, WINDOW_S), DAY_S) / DAY_S)
    for index in range(BINS):
        guard.day[index] = guard.day[index] * kept + guard.window[index]
        guard.window[index] = 0.0
    guard.window_s = now_s
