"""What a limiter keeps of one resource: flat numbers, so that a hash in Redis holds them and Lua steps them alike.

Times are seconds of one clock (0.0: never; the clock must be past 0). `in_flight` and `n_send` count calls. Every step
is a function of (state, terms, facts) that changes the state in place and returns the reason of a change of the limit
("" when it didn't change); it reads no clock and throws no dice.
"""

from dataclasses import dataclass
from typing import Literal

from harness.policy.retry import RETRY_AFTER_CAP_S

Reason = Literal[
    "",
    "probe",  # one more is tried on top of the proven ceiling
    "grow",  # the limit was reached and nothing was refused: more
    "edge",  # the call above the proven ceiling was refused: the ceiling is known
    "sharpen",  # another refusal of the same episode came from further below
    "drain",  # a refusal below the proven ceiling: the downstream has less than it had
    "canary",  # after a drain one call got through
    "timeouts",  # more than one call in twenty timed out
    "slow",  # latency is far above its baseline, and less in flight does as much
    "recovered",  # latency is back, or less in flight did less
    "restart",  # the breaker closed: from half again
    "bounds",  # an operator or the configuration moved floor or ceiling
    "additive",  # aimd: nothing refused and the limit used
    "backoff",  # aimd: something was refused
    "gradient",  # gradient: latency against its long mean
]
REASONS: tuple[Reason, ...] = (
    "probe", "grow", "edge", "sharpen", "drain", "canary", "timeouts", "slow", "recovered", "restart", "bounds",
    "additive", "backoff", "gradient",
)  # fmt: skip
RAMP, HOLD, DRAIN = 0, 1, 2
MODES = ("ramp", "hold", "drain")

START_LEAST = 4  # the first limit of a resource about which nothing is known
RESTART_RATIO = 0.5  # of the proven ceiling, after a closed breaker or a lost state
BLOCK_S = 30.0  # a longer Retry-After blocks the resource as a whole: the planner holds its tasks back
P0_SEEN_S = 600.0  # the reserve for P0 stands while P0 asked in the last ten minutes
RESERVE_FROM = 10  # one of five would be a fifth idle; below, P0 is first in line, as in small pools (rule 7)


@dataclass(frozen=True, kw_only=True, slots=True)
class Terms:
    """What is set for a resource: 1 <= floor <= ceiling; `reserve`: calls kept for P0 while the limit holds."""

    floor: int
    ceiling: int
    reserve: int = 0


@dataclass(slots=True)
class State:
    """All that the limiters know of one resource; each uses the fields it needs and leaves the others at 0."""

    limit: float  # L: calls that may be in flight; whole, but for `gradient`
    proven: float = 0.0  # K: so many were in flight for ACCEPT_S without a refusal; 0: nothing is proven
    mode: int = RAMP
    tokens: float = 0.0  # what probing may cost: refusals that successes have paid for
    first: int = 1  # 1 until the first edge was found
    hi: float = 0.0  # where the last refusal was found, and when
    hi_s: float = 0.0
    n0: float = 0.0  # the fewest in flight at which a call of this episode was refused
    canary_s: float = 0.0  # DRAIN: when the one call was sent (0: none is out), and how many were in flight then
    canary_n: float = 0.0
    refused: int = 0  # canaries refused in a row although nothing else was in flight
    cut_s: float = 0.0  # when the last episode of refusals began; calls sent before it belong to it
    pause_s: float = 0.0  # DRAIN: no canary before this
    blocked_s: float = 0.0  # nothing at all before this
    top_s: float = 0.0  # when a call first took the last place under the present limit (0: not yet)
    probe_s: float = 0.0  # when the limit was last probed, or found
    refusal_s: float = 0.0  # what a refusal takes to come back, lately
    p0_s: float = 0.0  # when P0 last asked
    drains: float = 0.0  # drains in the present ten minutes, in those before, and when the present ones began
    drains_before: float = 0.0
    drains_s: float = 0.0
    calls: float = 0.0  # calls ended in the present window, those of them that timed out, and when it began
    timeouts: float = 0.0
    window_s: float = 0.0
    steady: float = 0.0  # what was proven before time-outs lowered the limit, in windows on end
    trim: float = 0.0  # what the latency guard caps the limit at; 0: nothing
    sum_s: float = 0.0  # gradient: latency in the present sample, and its long mean
    mean_s: float = 0.0


def begin(terms: Terms, now_s: float, *, start: int | None = None, proven: float = 0.0) -> State:
    """Return the state of a resource that is new here: it ramps from half of what was once proven (or from `start`).

    >>> begin(Terms(floor=1, ceiling=100), 1.0).limit, begin(Terms(floor=1, ceiling=100), 1.0, proven=50).limit
    (4.0, 25.0)
    """
    first = max(START_LEAST, proven * RESTART_RATIO // 1) if start is None or proven else start
    state = State(limit=bounded(terms, first), window_s=now_s, drains_s=now_s, probe_s=now_s)
    if proven:
        state.first, state.hi, state.hi_s = 0, bounded(terms, proven), now_s
    return state


def restart(state: State, terms: Terms, now_s: float) -> Reason:
    """Begin again from half of the proven ceiling, after the breaker closed: no thundering herd.

    What it was doesn't bound the ramp: an outage that says 503 has drained it before the breaker opened.
    """
    known = state.proven or state.limit
    state.limit = bounded(terms, known * RESTART_RATIO // 1)
    state.mode, state.top_s, state.canary_s, state.pause_s, state.refused = RAMP, 0.0, 0.0, 0.0, 0
    state.hi, state.hi_s, state.proven = 0.0, now_s, 0.0
    return "restart"


def bounded(terms: Terms, limit: float) -> float:
    """Return a limit within the terms."""
    return float(min(max(limit, terms.floor, 1), terms.ceiling))


def block(state: State, now_s: float, pause_s: float) -> None:
    """Note that a downstream asked for a pause: a long one blocks the resource as a whole."""
    if pause_s > BLOCK_S:
        state.blocked_s = max(state.blocked_s, now_s + pause_s)


def clamp(state: State, terms: Terms) -> Reason:
    """Bring a limit into its bounds, which may have moved. Call this before any other step."""
    limit = bounded(terms, state.limit)
    if limit == state.limit:
        return ""
    state.limit = limit
    state.top_s = 0.0
    if state.proven > limit:
        state.proven = limit
    return "bounds"


def now_limit(state: State) -> int:
    """Return the limit as people and the planner see it: what was found, below what the latency guard allows."""
    return int(min(state.limit, state.trim) if state.trim else state.limit)


def reserve(state: State, terms: Terms, now_s: float) -> int:
    """Return how many calls are kept for P0 now: in HOLD only (R1), from ten on, and while P0 asked not long ago."""
    if state.mode != HOLD or state.limit < RESERVE_FROM or not state.p0_s or now_s - state.p0_s > P0_SEEN_S:
        return 0
    return terms.reserve


def asked(state: State, now_s: float, priority: int) -> None:
    """Note that somebody asks for a permit."""
    if priority == 0:
        state.p0_s = now_s


def wait_s(retry_after_s: float) -> float:
    """Return a Retry-After that can be believed: 0 to 15 minutes."""
    return min(max(retry_after_s, 0.0), RETRY_AFTER_CAP_S)
