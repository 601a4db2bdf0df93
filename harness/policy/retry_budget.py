"""The retry budget of one resource: retries are a share of first attempts, so that they can't become a storm. Pure.

T1  A first attempt brings `ratio` of a retry; time brings `per_s` a second, so that little traffic can retry too.
T2  What wasn't used within KEEP_S is gone: a good hour buys no bad minute.
T3  An empty budget fails nothing: the task goes back in line until it may.
T4  Under pressure the budget is smaller (pressure.retry_ratio), and a class that may not retry takes nothing of it: it
    goes back in line for as long as the level lasts at least.

Invariant: retries <= ratio * first attempts + per_s * seconds + the most that is kept (Finagle's retry budgets).
All steps change the budget in place; times are seconds of one clock past 0.
"""

from dataclasses import dataclass, replace

from harness.policy import pressure
from harness.policy.pressure import Level
from harness.policy.resources import Resource

RATIO = 0.1
PER_S = 0.5
KEEP_S = 10.0
MOST = 100.0
OWED_S = 900.0  # the longest that a debt makes anybody wait
HELD_BACK_S = 120.0  # the least that critical lasts


def under(resource: Resource, level: Level) -> Resource:
    """Return a resource with the budget that a level leaves it (T4)."""
    ratio = pressure.retry_ratio(level)
    if ratio == 1.0:
        return resource
    return replace(resource, retry_ratio=ratio * resource.retry_ratio, retry_per_s=ratio * resource.retry_per_s)


def held_back_s(level: Level, priority: int, jitter: float) -> float:
    """Return for how long a class that may not retry goes back in line; 0: it may. `jitter` in [0, 1).

    >>> held_back_s(Level.CRITICAL, 3, 0.5), held_back_s(Level.CRITICAL, 1, 0.5), held_back_s(Level.HIGH, 3, 0.5)
    (180.0, 0.0, 0.0)
    """
    return 0.0 if pressure.of(level, priority).retries else HELD_BACK_S * (1.0 + jitter)


@dataclass(slots=True)
class Budget:
    """What is kept. `came`, `came_before`: brought by first attempts in the present KEEP_S, and in those before."""

    tokens: float = 0.0
    at_s: float = 0.0
    came: float = 0.0
    came_before: float = 0.0
    began_s: float = 0.0


def most(budget: Budget, now_s: float, per_s: float = PER_S) -> float:
    """Return what can be kept now: what came in the last KEEP_S (T2), and never more than MOST."""
    past = max(now_s - budget.began_s, 0.0)
    if past >= 2 * KEEP_S:
        came = 0.0
    elif past >= KEEP_S:
        came = budget.came * (2.0 - past / KEEP_S)
    else:
        came = budget.came + budget.came_before * (1.0 - past / KEEP_S)
    return min(MOST, max(1.0, came + per_s * KEEP_S))


def grown(budget: Budget, now_s: float, per_s: float = PER_S) -> None:
    """Let time bring what it brings. The other steps do it themselves."""
    passed_s = max(now_s - budget.at_s, 0.0) if budget.at_s else KEEP_S
    budget.tokens = min(budget.tokens + per_s * passed_s, most(budget, now_s, per_s))
    budget.at_s = max(budget.at_s, now_s)


def first(budget: Budget, now_s: float, ratio: float = RATIO, per_s: float = PER_S) -> None:
    """Note a first attempt."""
    past = now_s - budget.began_s
    if past >= KEEP_S:
        budget.came_before = budget.came if past < 2 * KEEP_S else 0.0
        budget.came, budget.began_s = 0.0, now_s
    budget.came += ratio
    grown(budget, now_s, per_s)
    budget.tokens = min(budget.tokens + ratio, most(budget, now_s, per_s))


def take(budget: Budget, now_s: float, per_s: float = PER_S) -> float:
    """Take one retry and return 0; or take nothing and return the seconds after which there is one.

    >>> budget = Budget(tokens=0.0, at_s=100.0, began_s=100.0)
    >>> take(budget, 101.0), take(budget, 103.0), take(budget, 103.0)
    (1.0, 0.0, 1.0)
    """
    grown(budget, now_s, per_s)
    if budget.tokens >= 1.0 - 1e-9:
        budget.tokens -= 1.0
        return 0.0
    return (1.0 - budget.tokens) / per_s if per_s > 0 else KEEP_S


def owe(budget: Budget, now_s: float, per_s: float = PER_S) -> float:
    """Take one retry, as a debt when there is none, and return the seconds until it is paid; 0: there was one.

    Who goes back in line until then needn't ask again (T3). At most OWED_S, and the debt ends there too.

    >>> budget = Budget(tokens=1.0, at_s=100.0, began_s=100.0)
    >>> owe(budget, 100.0), owe(budget, 100.0), owe(budget, 100.0)
    (0.0, 2.0, 4.0)
    """
    if take(budget, now_s, per_s) == 0.0:
        return 0.0
    if per_s <= 0:
        return KEEP_S
    budget.tokens = max(budget.tokens - 1.0, -OWED_S * per_s)
    return -budget.tokens / per_s
