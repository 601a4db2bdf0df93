"""Lanes: what a class gets of its pool's slots although a more urgent one wants them all, paid in slot-seconds.

Rules 3 to 6 (README.md). Each lane has a credit, in seconds of cost: it grows with time and slots, and the tasks that
the lane picked pay it. A lane may pick while its credit, less what its running tasks overran, isn't negative: so it is
paid after and not before, and a pool of one slot has lanes as a pool of fifty has.

Invariants: a credit never exceeds its cap nor falls below its floor; without a backlog nothing is saved.
"""

from collections.abc import Sequence
from dataclasses import dataclass

P0, NO_LANE, P2, P3, AGED = range(5)  # who pays for a lease; NO_LANE: it came in the order of the classes
LANES = 5
SHARES = (0.0, 0.0, 0.15, 0.05, 0.03)  # of the pool's slots
P0_RATE = 0.5  # of the pool's slots, while others wait
RATES = (P0_RATE, *SHARES[1:])  # at which credits grow
START_S = 1.0  # a lane begins so many seconds of its share in debt
MEAN_WEIGHT = 0.02  # of one task in the moving means of the pool's service times
EST_WEIGHT = 0.1  # of one task in the moving mean of its class's cost
DEBT_MOST_S = 3600.0  # of its share of the pool, that a lane can owe
DEBT_MOST_ESTIMATES = 10


@dataclass(slots=True)
class Account:
    """What is kept of one lane and of the class with its number.

    `credit_s`: the lane's. `est_s`: mean cost of the class's tasks. `v`: virtual time of the class (line.py).
    `mean_s`, `square_s`: E[S] and E[S^2] of the pool's tasks, on the account of AGED. 0: not known yet.
    """

    credit_s: float = 0.0
    est_s: float = 0.0
    mean_s: float = 0.0
    square_s: float = 0.0
    v: float = 0.0


def mean(known_s: float, found_s: float, weight: float, n: int = 1) -> float:
    """Return a moving mean after `n` more of `found_s`; 0: nothing was known.

    >>> mean(0.0, 4.0, 0.1), round(mean(2.0, 4.0, 0.1), 3), round(mean(2.0, 4.0, 0.1, 2), 3)
    (4.0, 2.2, 2.38)
    """
    if not known_s:
        return found_s
    return known_s + (found_s - known_s) * (1.0 - (1.0 - weight) ** n)


def start(lane: int, slots: int) -> float:
    """Return the credit that a lane begins with."""
    return -SHARES[lane] * slots * START_S


def most(lane: int, slots: int, accounts: Sequence[Account]) -> float:
    """Return the cap of a lane's effective credit (rules 3 and 6)."""
    if lane == P0:
        return max(3, slots) * accounts[P0].est_s
    pool = accounts[AGED]
    weighted_s = pool.square_s / pool.mean_s if pool.mean_s else 0.0
    est_s = pool.mean_s if lane == AGED else accounts[lane].est_s
    return max(est_s, SHARES[lane] * max(slots * START_S, 2.0 * weighted_s))


def least(lane: int, slots: int, accounts: Sequence[Account]) -> float:
    """Return the floor of a lane's credit: its debt ends somewhere, so that one estimate can't close it for good."""
    if lane == P0:
        return -max(DEBT_MOST_ESTIMATES * accounts[P0].est_s, P0_RATE * slots * DEBT_MOST_S)
    est_s = accounts[AGED].mean_s if lane == AGED else accounts[lane].est_s
    return -max(DEBT_MOST_ESTIMATES * est_s, SHARES[lane] * slots * DEBT_MOST_S)


def grown(
    accounts: Sequence[Account],
    passed_s: float,
    slots: int,
    *,
    waited: Sequence[bool],
    overruns_s: Sequence[float],
) -> list[float]:
    """Return all credits after some time. `waited`: the lane had a backlog in it; `overruns_s`: of what it runs."""
    credits_s = [0.0] * LANES
    for lane in (P0, P2, P3, AGED):
        credit_s = accounts[lane].credit_s + RATES[lane] * slots * passed_s
        over_s = overruns_s[lane]
        if credit_s > over_s:  # no cap is less than that
            cap_s = (most(lane, slots, accounts) if lane == P0 or waited[lane] else 0.0) + over_s
            credit_s = min(credit_s, cap_s)
        credits_s[lane] = credit_s
    return credits_s


def in_turn(credits_s: Sequence[float]) -> list[int]:
    """Return the lanes of P2, P3 and the aged that may pick, the most overdue first.

    >>> in_turn([0.0, 0.0, 0.15, 0.1, -0.01])
    [3, 2]
    """
    due = [lane for lane in (P2, P3, AGED) if credits_s[lane] >= 0]
    if len(due) > 1:
        due.sort(key=lambda lane: (-credits_s[lane] / SHARES[lane], lane))
    return due
