"""What a level does to work: the one table, by level and priority. Pure. Running tasks are left alone.

Who reads it: the plan (`share`, `release`, `degrade`, `fanout`), the door (`door`), the retry budget (`retries`,
`retry_ratio`), who writes the pauses of pressure (`release`).

Invariants: a level takes from a class at least what every lower level takes, and what it takes from a class it takes
from every less urgent one, too. P0 is never touched.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from harness.policy.pressure.signals import Level

Door = Literal["accept", "defer", "limit", "reject"]  # in this order, from open to shut
Release = Literal["all", "floor", "nothing"]  # in this order, from all to nothing
DOORS: tuple[Door, ...] = get_args(Door)
RELEASES: tuple[Release, ...] = get_args(Release)

FANOUT_FROM = Level.HIGH
FANOUT_RATIO = 0.5
RETRY_FROM = Level.ELEVATED
RETRY_RATIO = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Action:
    """What a level does to a class.

    `share`: of a pool's slots, that the class may hold beyond its lane while a more urgent one waits in the pool.
    `door`: accept: always taken; defer: taken, and deferred if its wait is above the target; limit: the same, and
    refused if it is above the most; reject: refused if it would wait (rule R7: 5 s). `release`: floor: by its lane, or
    while nothing more urgent waits; nothing: it is paused where something more urgent waits, 15 min at most, then as
    floor. `degrade`: under its cheaper form. `retries`: what failed on a call may take the retry budget.
    """

    share: float = 1.0
    door: Door = "accept"
    release: Release = "all"
    degrade: bool = False
    retries: bool = True


_ALL = Action()
ACTIONS: Mapping[Level, tuple[Action, Action, Action, Action]] = {
    Level.NORMAL: (_ALL, _ALL, _ALL, _ALL),
    Level.ELEVATED: (_ALL, _ALL, Action(door="defer"), Action(door="defer", share=0.5)),
    Level.HIGH: (
        _ALL,
        Action(door="defer"),
        Action(door="defer", degrade=True),
        Action(door="limit", share=0.0, release="floor", degrade=True),
    ),
    Level.CRITICAL: (
        _ALL,
        Action(door="limit", degrade=True),
        Action(door="reject", share=0.0, release="floor", degrade=True, retries=False),
        Action(door="reject", share=0.0, release="nothing", degrade=True, retries=False),
    ),
}


def of(level: Level, priority: int) -> Action:
    """Return what a level does to a class.

    >>> of(Level.HIGH, 3).release, of(Level.CRITICAL, 0) == of(Level.NORMAL, 3)
    ('floor', True)
    """
    return ACTIONS[level][priority]


def most(slots: int, level: Level, priority: int) -> int:
    """Return how many slots of a pool a class may hold beyond its lane, while a more urgent one waits in the pool.

    >>> most(50, Level.NORMAL, 3), most(50, Level.ELEVATED, 3), most(1, Level.ELEVATED, 3), most(50, Level.HIGH, 3)
    (50, 25, 0, 0)
    """
    return int(slots * ACTIONS[level][priority].share)


def fanout(level: Level, cap: int) -> int:
    """Return how many slots a run may hold, of those that its cap gives it.

    >>> [fanout(level, 5) for level in Level], fanout(Level.HIGH, 1)
    ([5, 5, 2, 2], 1)
    """
    return max(1, int(cap * FANOUT_RATIO)) if level >= FANOUT_FROM else cap


def retry_ratio(level: Level) -> float:
    """Return what is left of the retry budget, as a factor.

    >>> [retry_ratio(level) for level in Level]
    [1.0, 0.5, 0.5, 0.5]
    """
    return RETRY_RATIO if level >= RETRY_FROM else 1.0


def done(before: Level, after: Level) -> str:
    """Return what a change did, in words.

    >>> done(Level.HIGH, Level.CRITICAL).split("; ")[0]
    'P3 paused where others wait, 15 min at most'
    >>> done(Level.ELEVATED, Level.NORMAL)
    'P3 has its whole weight again; whole retry budget; the door is open'
    """
    found = [new for old, new in zip(_told(before), _told(after), strict=True) if old != new]
    return "; ".join(found) or "nothing new"


def _told(level: Level) -> tuple[str, ...]:
    actions, ratio = ACTIONS[level], retry_ratio(level)
    return (
        _p3(actions[3]),
        _classes("cheaper forms", [one.degrade for one in actions]) or "no cheaper forms",
        "caps of runs halved" if fanout(level, 2) < 2 else "whole caps of runs",
        f"retry budget x{ratio:g}" if ratio < 1.0 else "whole retry budget",
        _classes("no retries", [not one.retries for one in actions]) or "retries of all classes",
        _door(actions),
    )


def _p3(action: Action) -> str:
    match action.release:
        case "nothing":
            return "P3 paused where others wait, 15 min at most"
        case "floor":
            return "P3 by its floor while others wait"
        case "all" if action.share < 1.0:
            return f"P3 at most {action.share:.0%} of a pool beyond its floor while others wait"
        case _:
            return "P3 has its whole weight again"


def _door(actions: Sequence[Action]) -> str:
    told = {"defer": "deferred", "limit": "limited", "reject": "refused"}
    found = [f"P{number} {told[one.door]}" for number, one in enumerate(actions) if one.door != "accept"]
    return f"at the door: {', '.join(found)}" if found else "the door is open"


def _classes(what: str, those: Sequence[bool]) -> str:
    named = [f"P{number}" for number, one in enumerate(those) if one]
    return f"{what}: {', '.join(named)}" if named else ""
