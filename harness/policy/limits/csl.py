"""The ceiling-seeking limiter: learn the ceiling from what was in flight at a refusal, and ration the refusals.

A refusal for concurrency tells the quota (so many were in flight when the call was sent) and comes back fast, so one
refused probe measures it. Each success pays EPSILON of a refusal.

L1  Expected: refused with at least K in flight before it. L = K = that number, or what is in flight beside it when it
    comes back, if that is more; HOLD; nothing is paused. (Of calls that are sent at once the refused may be the first.)
L2  Unexpected: refused below K, or overload was named. DRAIN: no call until what is in flight has fallen to
    DRAIN_RATIO of where it was refused; then one canary. Refused: again, from there. Accepted: RAMP from there.
L3  Sent before the episode began: it only sharpens (never raises) the limit, to the fewest that were in flight before
    one of the episode, or to what is in flight beside it.
L4  RAMP: the last place was taken ACCEPT_S ago and nothing was refused: K = L, and L grows by RAMP_RATIO, but not
    past where a refusal was found in the last HI_S.
L5  HOLD: somebody waits and the limit is used: one more, when a refusal is paid for and PROBE_LEAST_S have passed
    since the last probe, or PROBE_MOST_S have. Where the limit isn't used, it never grows.
L6  Canaries that are refused with nothing else in flight come ever more seldom: every CANARY_MOST_S in the end. This
    is the probing floor: one call in CANARY_MOST_S. When one call is left that doesn't end, a canary goes beside it
    after BESIDE_S.
L7  Time-outs: more than TIMEOUT_RATIO of at least TIMEOUT_CALLS in a window of WINDOW_S: K falls to TIMEOUT_CUT, and
    isn't probed for as long; in windows on end to TIMEOUT_FLOOR of what it was.
L8  A key that others use too (more than NOISY_DRAINS drains in NOISY_S): NOISY_RATIO of the limit is used in HOLD.

Invariants: floor <= L <= ceiling; a refusal never raises L; one canary at a time; refusals are paid for by successes,
but for those that tell that the quota fell.
The latency guard (guard.py) caps what this finds.
"""

from harness.policy.limits.state import (
    DRAIN,
    HOLD,
    RAMP,
    Reason,
    State,
    Terms,
    block,
    bounded,
    reserve,
    wait_s,
)

EPSILON = 0.007  # refusals that one success pays for: S = 5 s at quota 50, a probe each 14 s
FELL_COST = 0.5  # of a refusal that tells that the quota fell: charged in full, what follows it isn't probed for
TOKENS_MOST = 2.0  # what is saved, and owed, at most
RAMP_RATIO = 0.10  # a step of growth
FIRST_RATIO = 0.20  # until the first edge was found
DRAIN_RATIO = 0.90
ACCEPT_S = 0.5  # a call that was not refused by then is taken as accepted, at least;
ACCEPT_RATIO = 1.5  # where refusals take longer, so many times what they take lately,
ACCEPT_MOST_S = 10.0  # at most
REFUSAL_WEIGHT = 0.1  # of one refusal in what they take lately, when it was faster; a slower one counts at once
PROBE_LEAST_S = 5.0
PROBE_MOST_S = 120.0
HI_S = 30.0
CANARY_FIRST_S = 0.5
CANARY_MOST_S = 5.0
BESIDE_S = 2 * CANARY_MOST_S  # an answer may take minutes; nobody would notice meanwhile that the others are back
WINDOW_S = 30.0
TIMEOUT_RATIO = 0.05
TIMEOUT_CALLS = 20
TIMEOUT_CUT = 0.8
TIMEOUT_FLOOR = 0.5  # of what was proven before: calls that hang whatever the load don't end at one call at a time
NOISY_DRAINS = 18  # a quota that moves by 10 % each 15 s costs about 13: there the margin costs more than it spares
NOISY_S = 600.0
NOISY_RATIO = 0.95
SAME_S = 0.0005  # two times that differ by less are one: a clock's digits get lost on the way


def seen(state: State, terms: Terms, now_s: float, priority: int) -> int:
    """Return the limit for a call of this priority: it may be sent while fewer are in flight."""
    if now_s < state.blocked_s:
        return 0
    if state.mode == DRAIN:
        if state.canary_s or now_s < state.pause_s:
            return 0
        if state.n0 <= 1 and now_s - max(state.pause_s, state.cut_s) >= BESIDE_S:
            return 2
        return max(1, int(DRAIN_RATIO * state.n0))
    limit = state.limit
    if state.mode == HOLD:
        if noisy(state, now_s):
            limit = max(1, NOISY_RATIO * limit // 1)
        if priority > 0:
            limit = max(1, limit - reserve(state, terms, now_s))
    if state.trim:
        limit = min(limit, state.trim)
    return int(min(limit, terms.ceiling))


def sent(state: State, terms: Terms, now_s: float, n_send: int) -> Reason:
    """Note a call that is sent now, with `n_send` in flight before it."""
    if state.mode == DRAIN:
        state.canary_s, state.canary_n = now_s, n_send
    elif not state.top_s and n_send + 1 >= state.limit:
        state.top_s = now_s
    return ""


def succeeded(state: State, terms: Terms, now_s: float, n_send: int, sent_s: float, latency_s: float) -> Reason:
    """Note a success of the call that was sent at `sent_s` with `n_send` in flight before it."""
    state.tokens = min(TOKENS_MOST, state.tokens + EPSILON)
    reason = ended(state, terms, now_s, timed_out=False)
    if _is_canary(state, sent_s):
        return _accepted(state, terms, now_s)
    return reason


def ended(state: State, terms: Terms, now_s: float, *, timed_out: bool) -> Reason:
    """Note a call that ended as neither success nor drop (L7). `succeeded` does it for its own."""
    state.calls += 1
    if timed_out:
        state.timeouts += 1
    if now_s - state.window_s < WINDOW_S:
        return ""
    many = state.calls >= TIMEOUT_CALLS and state.timeouts > TIMEOUT_RATIO * state.calls
    state.window_s, state.calls, state.timeouts = now_s, 0.0, 0.0
    if not many:
        state.steady = 0.0
    if not many or state.mode == DRAIN:
        return ""
    proven = min(state.proven, state.limit) or state.limit
    state.steady = state.steady or proven
    changed = _found(state, terms, max(TIMEOUT_CUT * proven, TIMEOUT_FLOOR * state.steady) // 1)
    _hold(state, now_s)
    state.probe_s = now_s + WINDOW_S - PROBE_LEAST_S
    return "timeouts" if changed else ""


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
    """Note a refusal for concurrency; `in_flight` without this call; `overload`: 503 or 529, which no probe explains.

    Refusals of rate type belong to the buckets (bucket.py), not here. `retry_after_s`: 0 when none was given.
    """
    weight = 1.0 if latency_s > state.refusal_s else REFUSAL_WEIGHT
    state.refusal_s += weight * (latency_s - state.refusal_s)
    if state.mode == DRAIN:
        _pay(state, FELL_COST)
        return _drained(state, terms, now_s, n_send, sent_s, retry_after_s)
    if sent_s < state.cut_s - SAME_S:
        _pay(state, 1.0)
        state.n0 = min(state.n0, float(n_send))
        return "sharpen" if _found(state, terms, min(state.limit, max(state.n0, in_flight))) else ""
    state.cut_s = now_s
    if n_send >= state.proven and not overload:
        _pay(state, 1.0)
        changed = _found(state, terms, min(state.limit, max(n_send, in_flight)))
        state.n0 = float(n_send)
        state.hi, state.hi_s, state.first = state.limit, now_s, 0
        _hold(state, now_s)
        return "edge" if changed else ""
    _pay(state, FELL_COST)
    state.mode, state.n0, state.canary_s, state.refused, state.first = DRAIN, float(in_flight), 0.0, 0, 0
    _count_drain(state, now_s)
    _pause(state, now_s, wait_s(retry_after_s))
    return "drain" if _found(state, terms, min(state.limit, DRAIN_RATIO * state.n0 // 1)) else ""


def tick(state: State, terms: Terms, now_s: float, in_flight: int, waiting: int) -> Reason:
    """Take the slow steps that are due; `waiting`: who was refused for concurrency and still wants. Call it at will."""
    if state.mode == DRAIN:
        if state.canary_s and now_s - state.canary_s >= accept_s(state):
            return _accepted(state, terms, now_s)
        return ""
    if state.mode == RAMP:
        return _ramp(state, terms, now_s)
    return _probe(state, terms, now_s, in_flight, waiting)


def accept_s(state: State) -> float:
    """Return the seconds after which a call that wasn't refused counts as accepted."""
    return min(ACCEPT_MOST_S, max(ACCEPT_S, ACCEPT_RATIO * state.refusal_s))


def noisy(state: State, now_s: float) -> bool:
    """Whether drains come so often that others must be using the same key (L8)."""
    past = now_s - state.drains_s
    if past >= 2 * NOISY_S:
        return False
    if past >= NOISY_S:
        return state.drains * (2.0 - past / NOISY_S) > NOISY_DRAINS
    return state.drains + state.drains_before * (1.0 - past / NOISY_S) > NOISY_DRAINS


def _ramp(state: State, terms: Terms, now_s: float) -> Reason:
    if not state.top_s or now_s - state.top_s < accept_s(state):
        return ""
    state.proven = state.limit
    fresh = state.hi > 0 and now_s - state.hi_s < HI_S and state.limit <= state.hi
    if (fresh and state.limit == state.hi) or state.limit >= terms.ceiling or state.trim:
        _hold(state, now_s)
        return ""
    ratio = FIRST_RATIO if state.first else RAMP_RATIO
    limit = state.limit + max(1.0, ratio * state.limit // 1)
    state.limit = bounded(terms, min(limit, state.hi) if fresh else limit)
    state.top_s = 0.0
    return "grow"


def _probe(state: State, terms: Terms, now_s: float, in_flight: int, waiting: int) -> Reason:
    since_s = now_s - state.probe_s
    paid = state.tokens >= 1.0 and since_s >= PROBE_LEAST_S
    if not (paid or since_s >= PROBE_MOST_S) or not waiting or state.trim or state.limit >= terms.ceiling:
        return ""
    if in_flight + 1 < seen(state, terms, now_s, 1):
        return ""
    state.limit += 1.0
    state.mode, state.top_s, state.probe_s = RAMP, 0.0, now_s
    return "probe"


def _drained(state: State, terms: Terms, now_s: float, n_send: int, sent_s: float, retry_after_s: float) -> Reason:
    pause_s = wait_s(retry_after_s)
    if _is_canary(state, sent_s):
        state.canary_s, state.n0 = 0.0, float(n_send)
        if n_send == 0:
            pause_s = max(pause_s, min(CANARY_MOST_S, CANARY_FIRST_S * 2.0 ** min(state.refused, 10)))
            state.refused += 1
        else:
            state.refused = 0
    else:
        state.n0 = min(state.n0, float(n_send))
    _pause(state, now_s, pause_s)
    return "drain" if _found(state, terms, min(state.limit, DRAIN_RATIO * state.n0 // 1)) else ""


def _accepted(state: State, terms: Terms, now_s: float) -> Reason:
    before = state.limit
    state.limit = state.proven = bounded(terms, state.canary_n + 1)
    state.hi, state.hi_s = state.n0, now_s
    state.mode, state.canary_s, state.top_s, state.refused = RAMP, 0.0, 0.0, 0
    state.cut_s = now_s
    return "canary" if state.limit != before else ""


def _is_canary(state: State, sent_s: float) -> bool:
    return state.mode == DRAIN and state.canary_s > 0 and sent_s >= state.canary_s - SAME_S


def _found(state: State, terms: Terms, limit: float) -> bool:
    before = state.limit
    state.limit = state.proven = bounded(terms, limit)
    return state.limit != before


def _pay(state: State, cost: float) -> None:
    state.tokens = max(-TOKENS_MOST, state.tokens - cost)


def _hold(state: State, now_s: float) -> None:
    state.mode, state.top_s, state.probe_s = HOLD, 0.0, now_s


def _pause(state: State, now_s: float, pause_s: float) -> None:
    state.pause_s = max(state.pause_s, now_s + pause_s)
    block(state, now_s, pause_s)


def _count_drain(state: State, now_s: float) -> None:
    past = now_s - state.drains_s
    if past >= NOISY_S:
        state.drains_before = state.drains if past < 2 * NOISY_S else 0.0
        state.drains, state.drains_s = 0.0, now_s
    state.drains += 1.0
