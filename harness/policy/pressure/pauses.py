"""Which queues pressure pauses, and when it lets them go again. Pure.

Only what ACTIONS releases `nothing` of is paused: P3 at critical. A pool's queue of it is paused while something more
urgent waits in that pool, for MOST_S from the moment when the level became critical; afterwards, and where nothing more
urgent waits, the plan goes by the floor. What a level below critical takes is the plan's business, without a pause: a
floor can't pass a queue that nobody consumes.

Invariants: no pause ends after the MOST_S; a pause that stands stays STANDS_S, but no longer than the level.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from harness.policy.pressure.actions import ACTIONS
from harness.policy.pressure.signals import Level

MOST_S = 900.0  # then the floor returns, whatever the pressure
STANDS_S = 60.0  # at least, or it would come and go with every P1 task, and each end is a ramp of 20 s


@dataclass(frozen=True, kw_only=True, slots=True)
class Pauses:
    """What to put in force for `left_s` from now, and what to end; keys are a pool's priority (`llm.p3`)."""

    put: tuple[str, ...] = ()
    end: tuple[str, ...] = ()
    left_s: float = 0.0


def decide_pauses(
    level: Level, since_s: float, *, waiting: Collection[tuple[str, int]], standing: Mapping[str, tuple[float, float]]
) -> Pauses:
    """Decide once. `since_s`: how long the level has been this; `waiting`: (pool, priority) of what waits for capacity.

    `standing`: of the pauses of pressure in force, how long each has stood and how long it will.

    >>> decide_pauses(Level.CRITICAL, 0.0, waiting={("llm", 1), ("llm", 3), ("db", 3)}, standing={})
    Pauses(put=('llm.p3',), end=(), left_s=900.0)
    >>> decide_pauses(Level.HIGH, 0.0, waiting={("llm", 1)}, standing={"llm.p3": (5.0, 700.0)})
    Pauses(put=(), end=('llm.p3',), left_s=0.0)
    """
    left_s = MOST_S - max(since_s, 0.0)
    paused = [p for p, one in enumerate(ACTIONS[level]) if one.release == "nothing"]
    if left_s <= 0 or not paused:
        return Pauses(end=tuple(sorted(standing)))
    wanted = {f"{pool}.p{p}" for p in paused for pool, more_urgent in waiting if more_urgent < p}
    # One that would last longer than it may was put by a clock that has gone back since.
    put = {key for key in wanted if key not in standing or standing[key][1] > MOST_S}
    over = {key for key, (stood_s, lasts_s) in standing.items() if stood_s >= STANDS_S or lasts_s > MOST_S}
    return Pauses(put=tuple(sorted(put)), end=tuple(sorted(over - wanted)), left_s=left_s)
