"""What follows from an error: row B6 as data. Back-off is exponential with full jitter; Retry-After is a floor.

The dice are the caller's: `jitter` in [0, 1) comes in as a fact. Times are seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from harness.policy.errors import ErrorClass

Verdict = Literal["retry", "postpone", "fail"]

BASE_S = 0.5
CAP_S = 30.0
RETRY_AFTER_CAP_S = 900.0  # a downstream that names a longer time is asked again after a quarter of an hour


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """What an error class leads to, and how many attempts it may take at most (the kind's own limit also holds)."""

    verdict: Verdict
    most_attempts: int | None = None
    why: str = ""


VERDICTS: Mapping[ErrorClass, Rule] = {
    ErrorClass.RATE_LIMIT: Rule(verdict="postpone", why="the downstream is full: back in line, no attempt spent"),
    ErrorClass.TIMEOUT: Rule(verdict="retry", most_attempts=3, why="few retries; the error is kept"),
    ErrorClass.VALIDATION: Rule(verdict="fail", why="the same input gives the same error"),
    ErrorClass.PERMISSION: Rule(verdict="fail", why="a person must change a right first"),
    ErrorClass.SERVER_ERROR: Rule(verdict="retry", why="the downstream may recover"),
    ErrorClass.NETWORK: Rule(verdict="retry", why="the connection may recover"),
    ErrorClass.BUG: Rule(verdict="retry", most_attempts=2, why="most bugs repeat; one more try tells"),
    ErrorClass.LOST: Rule(verdict="retry", why="the worker died, not the work; see lost_starts"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """What to do after an error: `delay_s` until it is due again (None with `fail`)."""

    verdict: Verdict
    delay_s: float | None


def decide(
    error_class: ErrorClass,
    *,
    attempts_used: int,
    max_attempts: int,
    postponements: int,
    retry_after_s: float | None,
    jitter: float,
) -> Decision:
    """Decide after an attempt failed. `attempts_used` counts those before this one.

    >>> decide(ErrorClass.PERMISSION, attempts_used=0, max_attempts=4, postponements=0, retry_after_s=None, jitter=0.5)
    Decision(verdict='fail', delay_s=None)
    >>> decide(ErrorClass.RATE_LIMIT, attempts_used=3, max_attempts=4, postponements=0, retry_after_s=2.0, jitter=0.5)
    Decision(verdict='postpone', delay_s=2.5)
    """
    rule = VERDICTS[error_class]
    if rule.verdict == "fail":
        return Decision(verdict="fail", delay_s=None)
    if rule.verdict == "postpone":
        return Decision(
            verdict="postpone", delay_s=backoff_s(postponements, retry_after_s=retry_after_s, jitter=jitter)
        )
    most = min(max_attempts, rule.most_attempts or max_attempts)
    if attempts_used + 1 >= most:
        return Decision(verdict="fail", delay_s=None)
    return Decision(verdict="retry", delay_s=backoff_s(attempts_used, retry_after_s=retry_after_s, jitter=jitter))


def backoff_s(n: int, *, retry_after_s: float | None, jitter: float) -> float:
    """Seconds to wait after the n-th refusal (from 0): U(0, min(CAP_S, BASE_S * 2^n)), never before Retry-After.

    >>> backoff_s(0, retry_after_s=None, jitter=0.5), backoff_s(20, retry_after_s=None, jitter=0.5)
    (0.25, 15.0)
    >>> backoff_s(0, retry_after_s=10.0, jitter=0.5)
    10.5
    """
    if retry_after_s is not None and retry_after_s > 0:
        return min(retry_after_s, RETRY_AFTER_CAP_S) + jitter * max(1.0, BASE_S * float(2 ** min(n, 4)))
    return jitter * min(CAP_S, BASE_S * float(2 ** min(n, 16)))
