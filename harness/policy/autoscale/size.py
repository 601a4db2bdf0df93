"""What would be enough now: the least of what work asks for and what its downstreams carry. Pure.

A1  Work of one signature asks for (rate * S + waiting * S / DRAIN_S) / BUSY slots, what waits of P0 and P1 over
    URGENT_S; where tasks take LONG_S and more, for at least as many as it has: those don't come free in that time.
A2  Downstreams: for any set of them, what it carries and what the work that touches none of it asks for, together, are
    enough. The least such sum is what is asked for, and the set is what binds; the empty set: work does.
A3  A downstream that is held by the call carries limit / phi, and one more where the limit could still rise. While its
    limiter seeks, and the slots that run are what it is used by, it carries twice those: nobody knows better.
A4  A downstream that refuses (429, a block, an open breaker), or that tasks wait for in their slots, carries no more
    than it has: so work towards it adds nobody, however much of it waits.
A5  least <= workers <= most, and no more than the budget of connections allows.

Invariants: more work never asks for fewer workers; where a downstream binds, more work doesn't ask for more; with a
downstream that refuses and that all work needs, no more than run are asked for (but the least).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import ceil, inf
from typing import Literal

DRAIN_S = 300.0  # in which what waits is to be gone
URGENT_S = 60.0  # and what of it is P0 or P1
BUSY = 0.85  # of the slots, where work binds; the rest is for what comes unevenly
LONG_S = 60.0  # a task of so long keeps its slot for as long as one looks ahead
SEEK = 2.0  # times the slots that run, where nobody knows the limit
SLOT_BOUND = 0.9  # of the slots; a limit beyond it isn't what they wait for
WAITS_LEAST = 2  # tasks that wait in their slots even where the limit is enough: one is always next
WAITS_RATIO = 0.1  # of the limit
CHOICES_MOST = 10  # downstreams to choose from: 1024 sets

Binds = str  # the name of a downstream, or one of these
WORK, LEAST, MOST, CONNECTIONS, PRESSURE = "work", "least", "most", "connections", "pressure"


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """Work of one signature in a pool. `urgent`: of those that wait, P0 and P1.

    `a_second`: tasks that come; `mean_s`: what one takes in its slot.
    """

    needs: Mapping[str, int] = field(default_factory=dict)
    waiting: int = 0
    urgent: int = 0
    leases: int = 0
    a_second: float = 0.0
    mean_s: float = 10.0

    @property
    def slots(self) -> float:
        """How many it asks for (rule A1).

        >>> Work(a_second=1.7, mean_s=5.0).slots, round(Work(waiting=300, mean_s=17.0).slots)
        (10.0, 20)
        """
        steady = self.a_second * self.mean_s
        if self.mean_s >= LONG_S:
            steady = max(steady, float(self.leases))
        lasting = (self.waiting - self.urgent) / DRAIN_S + self.urgent / URGENT_S
        return (steady + lasting * self.mean_s) / BUSY


@dataclass(frozen=True, kw_only=True, slots=True)
class Downstream:
    """A resource as a pool meets it. `limit`: now, `ceiling`: of what is configured.

    `leases`: of this pool that need it, `others`: of other pools; `in_use`: calls under way, or tasks that hold it;
    `waiting`: tasks that wait for it in their slots. `refuses`: why nothing is added towards it, "" when it doesn't.
    `seeking`: its limiter looks for the limit; `settled`: it has found it.
    """

    name: str
    held: Literal["task", "call"]
    limit: int
    ceiling: int
    phi: float = 1.0
    leases: int = 0
    others: int = 0
    in_use: int = 0
    waiting: int = 0
    refuses: str = ""
    seeking: bool = False
    settled: bool = False

    @property
    def full(self) -> bool:
        """Whether more slots would only wait for it (rule A4)."""
        many = self.waiting > max(WAITS_LEAST, WAITS_RATIO * self.limit)
        return bool(self.refuses) or (self.held == "call" and many)

    def keeps(self, each: int) -> float:
        """Return how many slots of the pool its limit keeps at work. `each`: what a task holds of it."""
        if self.held == "task":
            return max(0.0, self.limit // each - self.others)
        limit = self.limit + (1 if self.limit < self.ceiling else 0)
        return max(0.0, limit / self.phi - self.others)

    def carries(self, slots: int, each: int) -> float:
        """Return how many slots it carries now (rules A3, A4). `slots`: of the pool, that run."""
        found = self.keeps(each)
        if self.full:
            return min(found, self.leases, slots)
        bound = self.limit / self.phi >= SLOT_BOUND * (slots + self.others)
        if self.seeking and bound and not self.waiting:
            return max(0.0, min(self.ceiling / self.phi - self.others, max(found, SEEK * max(slots, 1))))
        return found

    def told(self) -> str:
        """How it stands, for people.

        >>> Downstream(name="llm:default", held="call", limit=20, ceiling=50, in_use=20).told()
        'llm:default limit 20, in use 20'
        """
        why = f" {self.refuses};" if self.refuses else ""
        return f"{self.name}{why} limit {self.limit}, in use {self.in_use}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Crew:
    """A pool: `each` slots a worker process, `workers` that live and take work, `in_use` slots of them.

    `connections`: processes that the budget of Harness's own database allows, with those that run; `least`, `most`: as
    configured. `strained`: signals of pressure that say that what stands behind the workers has too much.
    """

    pool: str
    each: int
    workers: int
    in_use: int = 0
    least: int = 1
    most: int = 32
    connections: int = 1_000
    strained: tuple[str, ...] = ()

    @property
    def slots(self) -> int:
        """The slots that run."""
        return self.workers * self.each


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """What would be enough. `cap`: processes beyond which nothing gets work, where all that binds has been found."""

    workers: int
    binds: Binds
    reason: str
    holds: bool = False
    cap: int | None = None


def size(crew: Crew, work: Sequence[Work], downstreams: Mapping[str, Downstream]) -> Size:
    """Return how many worker processes would be enough for a pool now, and what binds.

    >>> llm = Downstream(name="llm:default", held="call", limit=20, ceiling=20, in_use=20, leases=24)
    >>> waits = Work(needs={"llm:default": 1}, waiting=9000, mean_s=5.0)
    >>> found = size(Crew(pool="llm", each=8, workers=3), [waits], {"llm:default": llm})
    >>> found.workers, found.binds, found.reason
    (3, 'llm:default', 'adding workers will not help: llm:default limit 20, in use 20')
    """
    asked = sum(one.slots for one in work)
    slots, names, covers = _least(crew, work, downstreams)
    wanted = _processes(slots, crew)
    busy = bool(crew.in_use or any(one.waiting or one.leases or one.slots > 0 for one in work))
    least = max(crew.least, 1) if busy else crew.least if crew.workers else 0
    cap = None if covers is None else max(least, _processes(covers, crew))
    holds = any(downstreams[name].refuses for name in names)
    if names:
        bound = [downstreams[name] for name in names]
        told = " and ".join(one.told() for one in bound)
        helps = wanted > crew.workers and not holds
        carried = f"{told}: that keeps {slots:,.0f} slots at work"
        binds, reason = "+".join(names), carried if helps else f"adding workers will not help: {told}"
    else:
        binds, reason = WORK, f"what waits and comes asks for {asked:,.1f} slots, {crew.each} a process"
    if crew.strained and wanted > crew.workers:
        said = ", ".join(crew.strained)
        return Size(
            workers=max(least, crew.workers),
            binds=PRESSURE,
            reason=f"adding workers will not help: the pressure is high by {said}",
            holds=True,
            cap=cap,
        )
    for most, name, why in (
        (crew.connections, CONNECTIONS, "the budget of connections to Harness's own database allows"),
        (crew.most, MOST, "processes_most of the pool allows"),
    ):
        if wanted > most:
            wanted, binds, reason = most, name, f"{why} {most} processes; {reason}"
    if wanted < least:
        wanted, binds = least, binds if names else LEAST
    return Size(workers=wanted, binds=binds, reason=reason, holds=holds, cap=cap)


def _processes(slots: float, crew: Crew) -> int:
    return ceil(min(slots, 1e6) / crew.each - 1e-9)


def _least(
    crew: Crew, work: Sequence[Work], downstreams: Mapping[str, Downstream]
) -> tuple[float, tuple[str, ...], float | None]:
    """Return the least sum of rule A2 and the set that it is of; and what covers all work, if that is settled."""
    by_names: dict[frozenset[str], float] = {}
    each: dict[str, int] = {}
    for one in work:
        names = frozenset(name for name in one.needs if name in downstreams)
        by_names[names] = by_names.get(names, 0.0) + one.slots
        for name in names:
            each[name] = min(each.get(name, one.needs[name]), one.needs[name])
    carried = {name: downstreams[name].carries(crew.slots, n) for name, n in each.items()}
    tight = sorted(carried, key=lambda name: (carried[name], name))[:CHOICES_MOST]
    best, covers = sum(by_names.values()), None
    chosen: tuple[str, ...] = ()
    for some in _sets(tight):
        whole = sum(carried[name] for name in some)
        free = sum(slots for needs, slots in by_names.items() if needs.isdisjoint(some))
        if whole + free < best - 1e-9:
            best, chosen = whole + free, some
        settled = all(downstreams[name].settled for name in some)
        if settled and not any(needs.isdisjoint(some) for needs in by_names):
            kept = sum(downstreams[name].keeps(each[name]) for name in some)
            covers = min(inf if covers is None else covers, kept)
    return best, chosen, covers


def _sets(names: Sequence[str]) -> Iterable[tuple[str, ...]]:
    for n in range(1, len(names) + 1):
        yield from combinations(sorted(names), n)
