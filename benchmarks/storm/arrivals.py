"""Who submits when: Poisson arrivals in phases, each of a priority. Pure; with one seed always the same."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

MIX = (0.05, 0.20, 0.50, 0.25)  # P0 .. P3, of all submissions


@dataclass(frozen=True, kw_only=True, slots=True)
class Phase:
    """So many submissions a second for so long."""

    rate_per_s: float
    for_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Arrival:
    """One submission, `at_s` seconds after the storm begins."""

    i: int
    at_s: float
    priority: int


def poisson(phases: Sequence[Phase], *, seed: int, mix: Sequence[float] = MIX) -> Iterator[Arrival]:
    """Yield the submissions of all phases, in order.

    >>> [one.priority for one in poisson([Phase(rate_per_s=1.0, for_s=6.0)], seed=1)]
    [3, 2, 2, 3, 0, 2]
    """
    dice = random.Random(seed)
    i, begin_s = 0, 0.0
    for phase in phases:
        end_s = begin_s + phase.for_s
        at_s = begin_s
        while phase.rate_per_s and (at_s := at_s + dice.expovariate(phase.rate_per_s)) < end_s:
            yield Arrival(i=i, at_s=at_s, priority=dice.choices(range(len(mix)), mix)[0])
            i += 1
        begin_s = end_s
