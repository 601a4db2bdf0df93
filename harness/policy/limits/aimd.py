"""AIMD in windows of a second: one more where the limit was used and nothing refused, a tenth less where something was.

Chiu and Jain 1989; as in Netflix concurrency-limits, without its time-out. It has no memory of the ceiling, so it
runs into it again and again: what the ceiling-seeking limiter is measured against. Invariants: floor <= L <= ceiling.
"""

from harness.policy.limits.fixed import ended, sent
from harness.policy.limits.state import Reason, State, Terms, block, bounded, wait_s

__all__ = ["dropped", "ended", "seen", "sent", "succeeded", "tick"]

SAMPLE_S = 1.0
BACKOFF_RATIO = 0.9


def seen(state: State, terms: Terms, now_s: float, priority: int) -> int:
    """Return the limit for a call of this priority: it may be sent while fewer are in flight."""
    if now_s < state.blocked_s:
        return 0
    return max(1, int(state.limit) - (terms.reserve if priority > 0 else 0))


def succeeded(state: State, terms: Terms, now_s: float, n_send: int, sent_s: float, latency_s: float) -> Reason:
    """Note a success."""
    state.calls += 1
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
    """Note a refusal: once in a sample, a tenth less."""
    block(state, now_s, wait_s(retry_after_s))
    if state.cut_s and now_s - state.cut_s < SAMPLE_S:
        return ""
    before = state.limit
    state.cut_s = state.window_s = now_s
    state.limit = bounded(terms, BACKOFF_RATIO * state.limit // 1)
    return "backoff" if state.limit != before else ""


def tick(state: State, terms: Terms, now_s: float, in_flight: int, waiting: int) -> Reason:
    """Grow by one, where a sample passed with the limit used and nothing refused."""
    if now_s - state.window_s < SAMPLE_S:
        return ""
    state.window_s = now_s
    if 2 * in_flight < state.limit or state.limit >= terms.ceiling:
        return ""
    state.limit = bounded(terms, state.limit + 1)
    return "additive"
