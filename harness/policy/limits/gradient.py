"""Gradient: the limit follows latency against its long mean (Gradient2 of Netflix concurrency-limits, its defaults).

It doesn't read refusals, and the fast ones look like low latency: at a quota it grows to the ceiling. It is here for
downstreams that slow down instead of refusing, and to be measured. Invariants: floor <= L <= ceiling.
"""

from harness.policy.limits.aimd import seen
from harness.policy.limits.fixed import ended, sent
from harness.policy.limits.state import Reason, State, Terms, bounded

__all__ = ["dropped", "ended", "seen", "sent", "succeeded", "tick"]

SAMPLE_S = 1.0
TOLERANCE = 1.5
QUEUE = 4.0
SMOOTHING = 0.2
LONG_WEIGHT = 2.0 / 601.0  # an exponential mean over 600 samples
LONG_DECAY = 0.95  # when latency has come down for good, the long mean follows faster


def succeeded(state: State, terms: Terms, now_s: float, n_send: int, sent_s: float, latency_s: float) -> Reason:
    """Note a call's latency."""
    state.calls += 1
    state.sum_s += latency_s
    return ""


def dropped(
    state: State,
    terms: Terms,
    now_s: float,
    n_send: int,
    sent_s: float,
    latency_s: float,
    in_flight: int,
    retry_after_s: float,
    overload: bool,
) -> Reason:
    """Note a call's latency: a refusal is a fast call here."""
    state.calls += 1
    state.sum_s += latency_s
    return ""


def tick(state: State, terms: Terms, now_s: float, in_flight: int, waiting: int) -> Reason:
    """Move the limit at the end of a sample."""
    if now_s - state.window_s < SAMPLE_S:
        return ""
    state.window_s = now_s
    if not state.calls:
        return ""
    short_s = state.sum_s / state.calls
    state.calls = state.sum_s = 0.0
    state.mean_s += (short_s - state.mean_s) * (LONG_WEIGHT if state.mean_s else 1.0)
    if short_s <= 0 or in_flight < state.limit / 2:
        return ""
    if state.mean_s / short_s > 2.0:
        state.mean_s *= LONG_DECAY
    ratio = max(0.5, min(1.0, TOLERANCE * state.mean_s / short_s))
    before = state.limit
    wanted = state.limit * ratio + QUEUE
    state.limit = bounded(terms, state.limit * (1.0 - SMOOTHING) + wanted * SMOOTHING)
    return "gradient" if state.limit != before else ""
