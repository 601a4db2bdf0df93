"""The latency guard: where a downstream slows down instead of refusing, less in flight does as much. Pure.

G1  Latency is normalised (time to the first byte, or seconds per output token; seconds of a call where there is
    neither) and counted in bins of a fixed ratio: the calls of the present window, and the day's windows by their p50.
G2  rho = p50 of the window / p20 of the day's. Above SLOW in WINDOWS windows on end: the limit is tried lower. As many
    windows later, still above: if throughput fell by COST_RATIO and more than its noise, it is restored and left alone
    for REST_S; else it goes lower still, in larger steps.
G3  rho below FAST: the cap rises by a tenth a window, and is gone at the limit, for REST_S at least.
G4  Fewer than CALLS_LEAST calls in a window, or DAY_LEAST windows in the day, say nothing. Never a fixed threshold:
    medians are compared with medians, so that a law of latency with a long tail isn't taken for a slow one.

`cap` goes into State.trim. Invariants: floor <= cap <= the limit when it was set; without a baseline there is no cap.
"""

from dataclasses import dataclass, field
from math import log

from harness.policy.limits.state import Reason, State, Terms

LEAST_S = 1e-4
RATIO = 1.15
BINS = 112  # 0.1 ms to ten minutes
WINDOW_S = 30.0
WINDOW_MOST_S = 600.0  # a window in which nearly nothing is called ends too, so that no cap stays for ever
DAY_S = 86_400.0
SLOW = 1.5
FAST = 1.2
WINDOWS = 3
CUTS = (0.9, 0.8, 0.7)
RISE = 1.1
COST_RATIO = 0.03
REST_S = 300.0
CALLS_LEAST = 50  # in a window: a median of fewer says more of its calls than of the downstream
DAY_LEAST = 10  # windows
BASE_QUANTILE = 0.2


def _bins() -> list[float]:
    return [0.0] * BINS


@dataclass(slots=True)
class Guard:
    """What is kept of one resource's latency. Of the two windows before the present one: their calls and seconds."""

    window_s: float = 0.0  # when the window began
    calls: float = 0.0  # in the window
    calls_1: float = 0.0
    calls_2: float = 0.0
    seconds_1: float = 0.0
    seconds_2: float = 0.0
    over: int = 0  # windows in a row above SLOW
    cuts: int = 0  # cuts in a row that were kept
    trial: int = 0  # windows left of the present trial
    calls_before: float = 0.0  # in the windows before the trial, and in how many seconds
    seconds_before: float = 0.0
    cap: float = 0.0
    cap_before: float = 0.0
    rest_s: float = 0.0  # no trial, and no rise, before this
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
    guard.calls += 1


def due(guard: Guard, now_s: float) -> bool:
    """Whether the window is over: after WINDOW_S, but not before it can tell something, or after WINDOW_MOST_S."""
    past_s = now_s - guard.window_s
    return past_s >= WINDOW_MOST_S or (past_s >= WINDOW_S and guard.calls >= CALLS_LEAST)


def turn(guard: Guard, state: State, terms: Terms, now_s: float) -> Reason:
    """End the window: set State.trim and return why it changed. Only when `due`."""
    seconds = max(now_s - guard.window_s, WINDOW_S)
    base_s = quantile_s(guard.day, BASE_QUANTILE) if sum(guard.day) >= DAY_LEAST else 0.0
    median_s = quantile_s(guard.window, 0.5) if guard.calls >= CALLS_LEAST else 0.0
    rho = median_s / base_s if base_s else 0.0
    calls_3 = guard.calls + guard.calls_1 + guard.calls_2
    seconds_3 = seconds + guard.seconds_1 + guard.seconds_2
    guard.calls_2, guard.seconds_2 = guard.calls_1, guard.seconds_1
    guard.calls_1, guard.seconds_1 = guard.calls, seconds
    _fold(guard, now_s, seconds, median_s)
    before = guard.cap
    guard.over = guard.over + 1 if rho > SLOW else 0
    guard.trial = max(0, guard.trial - 1) if rho else 0
    if rho < FAST and guard.cap:
        _rise(guard, state, now_s)
    elif rho > SLOW and not guard.trial and now_s >= guard.rest_s and guard.over >= WINDOWS:
        _cut(guard, state, terms, now_s, calls_3, seconds_3)
    state.trim = guard.cap
    if guard.cap == before:
        return ""
    return "slow" if guard.cap and (not before or guard.cap < before) else "recovered"


def _rise(guard: Guard, state: State, now_s: float) -> None:
    guard.cuts = guard.trial = 0
    guard.seconds_before = 0.0
    if now_s < guard.rest_s:
        return
    guard.cap = max(guard.cap + 1.0, RISE * guard.cap // 1)
    if guard.cap >= state.limit:
        guard.cap, guard.rest_s = 0.0, now_s + REST_S


def _cut(guard: Guard, state: State, terms: Terms, now_s: float, calls: float, seconds: float) -> None:
    """Judge the cut before this one, then go lower (G2)."""
    if guard.seconds_before:
        expected = guard.calls_before / guard.seconds_before * seconds
        noise = (1.0 / max(guard.calls_before, 1.0) + 1.0 / max(calls, 1.0)) ** 0.5
        if calls < (1.0 - COST_RATIO - noise) * expected:
            guard.cap, guard.cuts, guard.seconds_before, guard.rest_s = guard.cap_before, 0, 0.0, now_s + REST_S
            return
        guard.cuts += 1
    ratio = CUTS[min(guard.cuts, len(CUTS) - 1)]
    guard.cap_before, guard.trial, guard.over = guard.cap, WINDOWS, 0
    guard.calls_before, guard.seconds_before = calls, seconds
    guard.cap = max(float(terms.floor), 1.0, ratio * min(guard.cap or state.limit, state.limit) // 1)


def _fold(guard: Guard, now_s: float, seconds: float, median_s: float) -> None:
    kept = max(0.0, 1.0 - seconds / DAY_S)
    for index in range(BINS):
        guard.day[index] *= kept
        guard.window[index] = 0.0
    if median_s:
        guard.day[bin_of(median_s)] += 1.0
    guard.window_s, guard.calls = now_s, 0.0
