"""What a level does to work, as one table. Pure; the plan goes by it (policy.dispatch). Running tasks are left alone.

Monotone: what a level takes from a class, no lower level takes more of, and no more urgent class loses as much.
"""

from harness.policy.pressure.signals import Level

P3_SHARE = {Level.NORMAL: 1.0, Level.ELEVATED: 0.5, Level.HIGH: 0.5, Level.CRITICAL: 0.5}


def p3_most(slots: int, level: Level) -> int:
    """Return how many slots of a pool P3 may hold beyond its lanes, while P1 or P2 waits in it.

    >>> p3_most(50, Level.NORMAL), p3_most(50, Level.ELEVATED), p3_most(1, Level.HIGH)
    (50, 25, 0)
    """
    return int(slots * P3_SHARE[level])


def done(before: Level, after: Level) -> str:
    """Return what a change did, in words."""
    if P3_SHARE[before] == P3_SHARE[after]:
        return "nothing new"
    if P3_SHARE[after] < 1.0:
        return f"P3 beyond its floor: at most {P3_SHARE[after]:.0%} of a pool's slots while P1 or P2 waits"
    return "P3 has its whole weight again"
