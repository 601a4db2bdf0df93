"""The fixed limit: what is configured, whatever the downstream says. The one-line fallback of every resource.

Invariants: L = ceiling; a long Retry-After still blocks the resource, for nothing is gained by asking again.
"""

from harness.policy.limits.state import Reason, State, Terms, block, wait_s


def seen(state: State, terms: Terms, now_s: float, priority: int) -> int:
    """Return the limit for a call of this priority: it may be sent while fewer are in flight."""
    if now_s < state.blocked_s:
        return 0
    return max(1, terms.ceiling - (terms.reserve if priority > 0 else 0))


def sent(state: State, terms: Terms, now_s: float, n_send: int) -> Reason:
    """Note a call that is sent."""
    return ""


def succeeded(state: State, terms: Terms, now_s: float, n_send: int, sent_s: float, latency_s: float) -> Reason:
    """Note a success."""
    return ""


def ended(state: State, terms: Terms, now_s: float, *, timed_out: bool) -> Reason:
    """Note a call that ended as neither success nor drop."""
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
    """Note a refusal."""
    block(state, now_s, wait_s(retry_after_s))
    return ""


def tick(state: State, terms: Terms, now_s: float, in_flight: int, waiting: int) -> Reason:
    """Keep the limit at its ceiling."""
    if state.limit == terms.ceiling:
        return ""
    state.limit = float(terms.ceiling)
    return "bounds"
