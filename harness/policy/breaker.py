"""The circuit breaker of one resource, shared by all workers: closed, open, half-open with few leased probes. Pure.

K1  Opens when, in the last WINDOW_S, of at least CALLS_LEAST calls half failed or SLOW_RATIO were slow; or after
    STREAK failures in a row where there were fewer calls, STREAK_BUSY where there were more. Failures are 5xx, no
    connection, time-out; never 429 or 4xx.
K2  Stays open for OPEN_S * 2^k, at most OPEN_MOST_S, within +-20 % by jitter (a fact in [0, 1)); k grows each time
    the probes fail and falls to 0 after FORGET_S closed.
K3  Half-open: at most PROBES at once. A probe's lease ends after LEASE_S, so who died can't wedge it.
K4  PROBES successes in a row close it (the limiter then starts from half: limits.state.restart). One failure opens it.
K5  What was sent before it opened says nothing any more.

The window is ten buckets of three seconds in flat lists. All steps change the breaker in place; times are seconds of
one clock past 0. Invariants: nothing may be sent while it is open; at most PROBES leases; every change is one of GRAPH.
"""

from dataclasses import dataclass, field
from typing import Literal

CLOSED, OPEN, HALF_OPEN = 0, 1, 2
MODES = ("closed", "open", "half_open")
GRAPH = frozenset({(CLOSED, OPEN), (OPEN, HALF_OPEN), (HALF_OPEN, CLOSED), (HALF_OPEN, OPEN)})
Change = Literal["", "opened", "probing", "closed", "reopened"]

BUCKETS = 10
BUCKET_S = 3.0
WINDOW_S = BUCKETS * BUCKET_S
CALLS_LEAST = 20
FAILURE_RATIO = 0.5
SLOW_RATIO = 0.8
STREAK = 5  # failures in a row that open where there is too little to count,
STREAK_BUSY = 20  # and where there is much: the successes of half a minute ago needn't be outweighed first
OPEN_S = 5.0
OPEN_MOST_S = 120.0
JITTER = 0.2
FORGET_S = 300.0
PROBES = 3
LEASE_S = 60.0
SAME_S = 0.0005  # two times that differ by less are one: a clock's digits get lost on the way


def _zeros() -> list[float]:
    return [0.0] * BUCKETS


@dataclass(slots=True)
class Breaker:
    """What is kept of one breaker."""

    mode: int = CLOSED
    since_s: float = 0.0  # when it came into this mode
    until_s: float = 0.0  # OPEN: when it becomes half-open
    k: int = 0
    streak: int = 0  # CLOSED: failures in a row; HALF_OPEN: successes in a row
    bucket: int = 0  # number of the bucket that counts now: floor(now_s / BUCKET_S)
    calls: list[float] = field(default_factory=_zeros)
    failures: list[float] = field(default_factory=_zeros)
    slow: list[float] = field(default_factory=_zeros)
    probes_s: list[float] = field(default_factory=lambda: [0.0] * PROBES)  # when each was sent; 0: free


def tick(breaker: Breaker, now_s: float) -> Change:
    """Become half-open when it is time, and free what a dead prober left. Call this before each look."""
    if breaker.mode == OPEN and now_s >= breaker.until_s:
        breaker.mode, breaker.since_s, breaker.streak = HALF_OPEN, now_s, 0
        breaker.probes_s[:] = [0.0] * PROBES
        return "probing"
    if breaker.mode == HALF_OPEN:
        for index in range(PROBES):
            if breaker.probes_s[index] and now_s - breaker.probes_s[index] >= LEASE_S:
                breaker.probes_s[index] = 0.0
    return ""


def wait_s(breaker: Breaker, now_s: float) -> float:
    """Return 0 when a call may go, else the seconds until it is worth asking again. Changes nothing."""
    if breaker.mode == OPEN:
        return max(breaker.until_s - now_s, 0.001)
    if breaker.mode == HALF_OPEN and all(breaker.probes_s):
        return max(min(breaker.probes_s) + LEASE_S - now_s, 0.001)
    return 0.0


def sent(breaker: Breaker, now_s: float) -> None:
    """Note a call that goes; only after `wait_s` said 0. In half-open it takes a probe's lease."""
    if breaker.mode == HALF_OPEN:
        breaker.probes_s[breaker.probes_s.index(0.0)] = now_s


def reported(
    breaker: Breaker, now_s: float, sent_s: float, *, counts: bool, failed: bool, slow: bool, jitter: float
) -> Change:
    """Note how a call ended; `counts`: False for what says nothing about health (429, 4xx, cancelled).

    `slow`: its normalised latency was above twice the p99 of the day. `jitter` in [0, 1).
    """
    if breaker.mode == OPEN:
        return ""
    if breaker.mode == HALF_OPEN:
        return _probed(breaker, now_s, sent_s, counts=counts, failed=failed, jitter=jitter)
    if not counts or sent_s < breaker.since_s - SAME_S:
        return ""
    turn(breaker, now_s)
    index = breaker.bucket % BUCKETS
    breaker.calls[index] += 1
    if failed:
        breaker.failures[index] += 1
    if slow:
        breaker.slow[index] += 1
    breaker.streak = breaker.streak + 1 if failed else 0
    calls, failures = sum(breaker.calls), sum(breaker.failures)
    if calls >= CALLS_LEAST:
        many = failures >= FAILURE_RATIO * calls or sum(breaker.slow) >= SLOW_RATIO * calls
        if not many and breaker.streak < STREAK_BUSY:
            return ""
    elif breaker.streak < STREAK:
        return ""
    if breaker.since_s and now_s - breaker.since_s >= FORGET_S:
        breaker.k = 0
    _open(breaker, now_s, jitter)
    return "opened"


def turn(breaker: Breaker, now_s: float) -> None:
    """Empty the buckets that have passed out of the window."""
    number = int(now_s / BUCKET_S)
    for step in range(max(breaker.bucket + 1, number - BUCKETS + 1), number + 1):
        index = step % BUCKETS
        breaker.calls[index] = breaker.failures[index] = breaker.slow[index] = 0.0
    breaker.bucket = max(breaker.bucket, number)


def open_s(k: int, jitter: float) -> float:
    """Return how long it stays open the k-th time (from 0).

    >>> open_s(0, 0.5), open_s(2, 0.5), open_s(9, 0.0)
    (5.0, 20.0, 96.0)
    """
    return min(OPEN_MOST_S, OPEN_S * 2.0 ** min(k, 10)) * (1.0 - JITTER + 2.0 * JITTER * jitter)


def _open(breaker: Breaker, now_s: float, jitter: float) -> None:
    breaker.mode, breaker.since_s, breaker.until_s = OPEN, now_s, now_s + open_s(breaker.k, jitter)
    breaker.streak = 0
    _forget(breaker)


def _probed(breaker: Breaker, now_s: float, sent_s: float, *, counts: bool, failed: bool, jitter: float) -> Change:
    for index in range(PROBES):
        if breaker.probes_s[index] and abs(breaker.probes_s[index] - sent_s) < SAME_S:
            breaker.probes_s[index] = 0.0
            break
    if not counts or sent_s < breaker.since_s - SAME_S:
        return ""
    if failed:
        breaker.k += 1
        _open(breaker, now_s, jitter)
        return "reopened"
    breaker.streak += 1
    if breaker.streak < PROBES:
        return ""
    breaker.mode, breaker.since_s, breaker.streak = CLOSED, now_s, 0
    _forget(breaker)
    return "closed"


def _forget(breaker: Breaker) -> None:
    breaker.calls[:], breaker.failures[:], breaker.slow[:] = _zeros(), _zeros(), _zeros()
    breaker.probes_s[:] = [0.0] * PROBES
