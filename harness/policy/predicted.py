"""How long new work will wait: the prediction that the door, and what it has deferred, go by. Pure; rule R6.

A place is where work happens in so many slots: a pool, or a resource as wide as its limit over phi (policy.pressure
says which). A task waits for the worst of its places. Of its class it waits behind what fair service puts before it:
for each other tenant no more than that tenant's weight allows, so a tenant with little waits little, whatever others
have sent. And behind what waits in more urgent classes, unless the floor of its own class brings it sooner. Of a single
tenant, with nothing more urgent in line, this is B_p / mu_p of R6.

Invariants: a wait never falls when anything more waits, in its class or a more urgent one; it is at least the tick; the
wait of a tenant's next task is at most that of the whole class before it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from harness.policy.pressure.measure import SHARES, TICK_S

WAIT_MOST_S = 7 * 86_400.0  # of what hardly moves: nobody is told more


class Crowd(NamedTuple):
    """Tenants with about as many tasks waiting, each for its weight: all their tasks, and the sum of their weights."""

    tasks: float
    weight: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A pool or resource. `in_use`: of its slots; `mean_s`: how long a task holds one.

    `rates`: tasks a second that came and were accepted in the last minute, by class; `crowds`: who waits, by class,
    postponed ones included and deferred ones not.
    """

    slots: float
    in_use: float
    mean_s: float
    rates: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0)
    crowds: tuple[tuple[Crowd, ...], ...] = ((), (), (), ())

    @property
    def a_second(self) -> float:
        """Tasks that it gets done a second, when all its slots are in use."""
        return self.slots / self.mean_s

    def waiting(self, priority: int) -> float:
        """Return how many of a class wait for it."""
        return sum(crowd.tasks for crowd in self.crowds[priority])


@dataclass(frozen=True, kw_only=True, slots=True)
class Own:
    """A tenant at a place. `ahead`: its own tasks of the class that are before the next one.

    `fresh`: how many of those, and of others', came after the place was looked at. `cap`: of its tasks in flight.
    """

    ahead: float = 0.0
    weight: float = 1.0
    fresh: float = 0.0
    in_flight: int = 0
    cap: int | None = None


def floor(place: Place, priority: int) -> float:
    """Return the tasks a second that a class has for certain, whatever else waits."""
    return SHARES[priority] * place.a_second


def rest(place: Place, priority: int) -> float:
    """Return the tasks a second that more urgent arrivals and the floors of who is less urgent leave to a class."""
    whole = place.a_second
    lanes = sum(SHARES[q] * whole for q in range(priority + 1, 4) if place.crowds[q])
    return whole - sum(place.rates[:priority]) - lanes


def pace(place: Place, priority: int) -> float:
    """Return the tasks a second that a class gets at a place (mu_p of rule R6), with nothing more urgent in line.

    >>> round(pace(Place(slots=10, in_use=10, mean_s=1.0), 2), 2)
    10.0
    >>> round(pace(Place(slots=10, in_use=10, mean_s=1.0, rates=(0, 9, 0, 0)), 2), 2)
    1.5
    """
    return max(floor(place, priority), rest(place, priority))


def before(place: Place, priority: int, own: Own) -> float:
    """Return how many tasks of its class go before a tenant's next one."""
    each = (own.ahead + 1.0) / own.weight  # that a tenant of weight 1 has had by then
    served = sum(min(crowd.tasks, crowd.weight * each) for crowd in place.crowds[priority])
    return max(served + own.fresh, own.ahead)


def wait_s(place: Place, priority: int, own: Own) -> float | None:
    """Return how long a tenant's next task would wait at a place. None: nothing works there, so nobody can say.

    >>> crowded = Place(slots=10, in_use=10, mean_s=5.0, crowds=((), (), (Crowd(200, 1.0),), ()))
    >>> wait_s(crowded, 2, Own(ahead=200)), wait_s(crowded, 2, Own())
    (100.75, 1.25)
    >>> wait_s(Place(slots=10, in_use=3, mean_s=5.0), 2, Own())
    0.25
    """
    if place.slots <= 0:
        return None
    capped_s = 0.0
    if own.cap is not None and own.in_flight + own.ahead >= own.cap:
        if own.cap <= 0:
            return WAIT_MOST_S
        capped_s = (own.in_flight + own.ahead + 1 - own.cap) * place.mean_s / own.cap
    ahead = before(place, priority, own)
    urgent = sum(place.waiting(q) for q in range(priority))
    if not urgent and place.in_use + ahead + 1 <= place.slots:
        return min(WAIT_MOST_S, TICK_S + capped_s)
    shared_s = (ahead + 1.0) / floor(place, priority)
    left = rest(place, priority)
    if left > 0:
        shared_s = min(shared_s, (urgent + ahead + 1.0) / left)
    return min(WAIT_MOST_S, TICK_S + max(capped_s, shared_s))


def worst_s(waits_s: Sequence[float | None]) -> float | None:
    """Return the wait of a task that needs several places; what nobody can say of one, nobody can say of it.

    >>> worst_s([0.25, 9.0]), worst_s([0.25, None]), worst_s([])
    (9.0, None, None)
    """
    known = [wait for wait in waits_s if wait is not None]
    return max(known) if known and len(known) == len(waits_s) else None


def level_of(place: Place, priority: int, within_s: float, crowds: Sequence[Crowd]) -> float:
    """Return how many tasks a tenant of weight 1 may have in line, so that its last one waits no longer than that.

    `crowds`: who waits and who would like to. What has been deferred is let in up to this level.

    >>> ten = Place(slots=10, in_use=10, mean_s=1.0)
    >>> level_of(ten, 2, 60.35, [Crowd(10_000, 1.0), Crowd(100, 1.0)])
    500.0
    """
    if place.slots <= 0:
        return 0.0
    # Where slots are free nobody waits, however long a task holds one.
    urgent = sum(place.waiting(q) for q in range(priority))
    idle = place.slots - place.in_use - urgent
    by_floor = (within_s - TICK_S) * floor(place, priority) - 1.0
    tasks = max(0.0, idle, by_floor, (within_s - TICK_S) * rest(place, priority) - urgent - 1.0)
    # Water runs in: by how much it rises with each task depends on who still has some left.
    steps = sorted((crowd.tasks / crowd.weight, crowd.weight) for crowd in crowds if crowd.tasks > 0)
    weight = sum(one for _, one in steps)
    level = 0.0
    for at, (full, own) in enumerate(steps):
        rise = (full - level) * weight
        if rise >= tasks:
            break
        tasks -= rise
        level, weight = full, weight - own
        if at == len(steps) - 1:
            return WAIT_MOST_S * place.a_second  # everybody fits
    return max(0.0, level + tasks / weight) if weight > 0 else WAIT_MOST_S * place.a_second


def crowds_of(backlogs: Sequence[tuple[float, float]]) -> tuple[Crowd, ...]:
    """Return tenants, as (tasks, weight), as crowds: one each, the smallest for its weight first.

    >>> crowds_of([(4, 1.0), (0, 1.0), (6, 3.0)])
    (Crowd(tasks=6, weight=3.0), Crowd(tasks=4, weight=1.0))
    """
    found = sorted((tasks / weight, tasks, weight) for tasks, weight in backlogs if tasks > 0)
    return tuple(Crowd(tasks, weight) for _, tasks, weight in found)
