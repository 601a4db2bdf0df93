"""What follows from an error: row B6 as data, and how a kind may refine it.

Back-off is exponential with full jitter; Retry-After is a floor. Only the task layer retries: a call is sent once. What
a downstream or a limit holds back (a 429, a missing permit, an open breaker) is put back in line and costs no attempt.

The dice are the caller's: `jitter` in [0, 1) comes in as a fact. Times are seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from harness.policy.errors import ErrorClass, Invalid

Verdict = Literal["retry", "postpone", "repair", "fail"]

BASE_S = 0.5
CAP_S = 30.0
CAP_MOST_S = 3_600.0  # of a kind's own back-off
RETRY_AFTER_CAP_S = 900.0  # a downstream that names a longer time is asked again after a quarter of an hour
# A task that a dead downstream has failed so often spends attempts again: it may be what kills it. With breakers that
# stay open for two minutes this is an outage of an hour.
OUTAGE_POSTPONEMENTS_MOST = 30


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """What an error class leads to, and how many attempts it may take at most (the kind's own limit also holds).

    `base_s`, `cap_s`: of the back-off. With `repair` the kind's repair function is asked once, within the same attempt;
    without one, or when that doesn't help, it fails.
    """

    verdict: Verdict
    most_attempts: int | None = None
    base_s: float = BASE_S
    cap_s: float = CAP_S
    why: str = ""


VERDICTS: Mapping[ErrorClass, Rule] = MappingProxyType({
    ErrorClass.RATE_LIMIT: Rule(verdict="postpone", why="the downstream is full: back in line, no attempt spent"),
    ErrorClass.NO_PERMIT: Rule(
        verdict="postpone", why="our own limit, a bucket or an open breaker: it wasn't called, no attempt spent"
    ),
    ErrorClass.TIMEOUT: Rule(verdict="retry", most_attempts=3, why="few retries; the error is kept"),
    ErrorClass.VALIDATION: Rule(
        verdict="repair", why="the same input gives the same error: once to the kind's repair function, or it fails"
    ),
    ErrorClass.PERMISSION: Rule(verdict="fail", why="a person must change a right first"),
    ErrorClass.SERVER_ERROR: Rule(
        verdict="retry", why="the downstream may recover; while its breaker isn't closed, no attempt spent"
    ),
    ErrorClass.NETWORK: Rule(verdict="retry", why="the connection may recover; the breaker counts it too"),
    ErrorClass.BUG: Rule(verdict="retry", most_attempts=2, why="most bugs repeat; one more try tells"),
    ErrorClass.LOST: Rule(verdict="retry", why="the worker died, not the work; see lost_starts"),
})  # fmt: skip

# What a kind may make of a class. A class that isn't here is not the kind's to judge. `postpone` only where somebody
# else says when: an error of the work itself would come back for ever, because a postponement spends nothing.
REFINABLE: Mapping[ErrorClass, frozenset[Verdict]] = MappingProxyType({
    ErrorClass.RATE_LIMIT: frozenset({"postpone", "fail"}),
    ErrorClass.TIMEOUT: frozenset({"retry", "fail"}),
    ErrorClass.VALIDATION: frozenset({"repair", "retry", "fail"}),
    ErrorClass.PERMISSION: frozenset({"retry", "fail"}),
    ErrorClass.SERVER_ERROR: frozenset({"retry", "fail"}),
    ErrorClass.NETWORK: frozenset({"retry", "fail"}),
    ErrorClass.BUG: frozenset({"retry", "fail"}),
})  # fmt: skip

# A downstream failed, not the work: the breaker counts these, and the retry budget pays for trying again.
OF_A_DOWNSTREAM = frozenset({ErrorClass.TIMEOUT, ErrorClass.SERVER_ERROR, ErrorClass.NETWORK})


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """What to do after an error: `delay_s` until it is due again (None with `fail`)."""

    verdict: Literal["retry", "postpone", "fail"]
    delay_s: float | None


def refine(own: Mapping[str, Rule], *, repairs: bool) -> Mapping[ErrorClass, Rule]:
    """Return the table as a kind has it. `own`: its rules by error class; `repairs`: it has a repair function.

    Raises: Invalid naming the class and what may be made of it.

    >>> refine({"timeout": Rule(verdict="fail")}, repairs=False)[ErrorClass.TIMEOUT].verdict
    'fail'
    """
    table = dict(VERDICTS)
    for name, rule in own.items():
        at = f"retry[{name!r}]"
        allowed = {str(one): verdicts for one, verdicts in REFINABLE.items()}
        if name not in allowed:
            raise Invalid(f"{at}: may be one of {', '.join(sorted(allowed))}", field="retry")
        if rule.verdict not in allowed[name]:
            raise Invalid(f"{at}: the verdict may be {' or '.join(sorted(allowed[name]))}", field="retry")
        if rule.most_attempts is not None and rule.most_attempts < 1:
            raise Invalid(f"{at}: most_attempts must be at least 1, not {rule.most_attempts!r}", field="retry")
        if not 0 < rule.base_s <= rule.cap_s <= CAP_MOST_S:
            raise Invalid(f"{at}: 0 < base_s <= cap_s <= {CAP_MOST_S:g} must hold", field="retry")
        if rule.verdict == "repair" and not repairs:
            raise Invalid(f"{at}: this kind has no repair function", field="retry")
        table[ErrorClass(name)] = rule if rule.why else replace(rule, why="as this kind says")
    return MappingProxyType(table)


def decide(
    error_class: ErrorClass,
    *,
    attempts_used: int,
    max_attempts: int,
    postponements: int,
    retry_after_s: float | None,
    jitter: float,
    rules: Mapping[ErrorClass, Rule] = VERDICTS,
    outage: bool = False,
) -> Decision:
    """Decide after an attempt failed. `attempts_used` counts those before this one; `retry_after_s`: a floor.

    `outage`: the breaker of the downstream that failed isn't closed, so the error says nothing of this task.

    >>> decide(ErrorClass.PERMISSION, attempts_used=0, max_attempts=4, postponements=0, retry_after_s=None, jitter=0.5)
    Decision(verdict='fail', delay_s=None)
    >>> decide(ErrorClass.RATE_LIMIT, attempts_used=3, max_attempts=4, postponements=0, retry_after_s=2.0, jitter=0.5)
    Decision(verdict='postpone', delay_s=2.5)
    """
    rule = rules[error_class]
    again = rule.verdict == "retry"
    if rule.verdict == "postpone" or (
        again and outage and error_class in OF_A_DOWNSTREAM and postponements < OUTAGE_POSTPONEMENTS_MOST
    ):
        return Decision(verdict="postpone", delay_s=_wait_s(rule, postponements, retry_after_s, jitter))
    most = min(max_attempts, rule.most_attempts or max_attempts)
    if not again or attempts_used + 1 >= most:
        return Decision(verdict="fail", delay_s=None)
    return Decision(verdict="retry", delay_s=_wait_s(rule, attempts_used, retry_after_s, jitter))


def backoff_s(
    n: int, *, retry_after_s: float | None, jitter: float, base_s: float = BASE_S, cap_s: float = CAP_S
) -> float:
    """Seconds to wait after the n-th refusal (from 0): U(0, min(cap_s, base_s * 2^n)), never before Retry-After.

    >>> backoff_s(0, retry_after_s=None, jitter=0.5), backoff_s(20, retry_after_s=None, jitter=0.5)
    (0.25, 15.0)
    >>> backoff_s(0, retry_after_s=10.0, jitter=0.5)
    10.5
    """
    if retry_after_s is not None and retry_after_s > 0:
        # Spread over as long as the queue behind it may take: all have read the same moment.
        return min(retry_after_s, RETRY_AFTER_CAP_S) + jitter * max(1.0, BASE_S * float(2 ** min(n, 4)))
    return jitter * min(cap_s, base_s * float(2 ** min(n, 16)))


def _wait_s(rule: Rule, n: int, retry_after_s: float | None, jitter: float) -> float:
    return backoff_s(n, retry_after_s=retry_after_s, jitter=jitter, base_s=rule.base_s, cap_s=rule.cap_s)
