"""The scenarios on which limiters are compared: a quota that goes from 50 to 20 and back, seen six ways; and others.

A caller never knows more than permits do: what was refused, what ended, who waits.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import inf

from harness.policy.limits.state import Terms
from harness.sim.calls import ORACLE, Play
from harness.sim.provider import Law

SEEDS = (1, 2, 3, 4, 5)
PHASE_S = 600.0
SHORT_PHASE_S = 180.0
STRATEGIES = ("csl", "aimd", "gradient", "fixed", ORACLE)
CEILING = 150  # what an operator would set as a backstop: three times the quota
FIXED = 50  # the fixed limit is what the quota was on the day of setting it
TERMS = Terms(floor=1, ceiling=CEILING)


def phases(seconds: float) -> tuple[tuple[float, float], ...]:
    """Return the quota's steps: 50, 20, 50."""
    return ((seconds, 50.0), (seconds, 20.0), (seconds, 50.0))


def columns(seconds: float = PHASE_S) -> Mapping[str, Play]:
    """Return the six columns; endless backlog, refusals after 0.2 s that hold their place, lognormal service times."""
    steps = phases(seconds)
    return _plays(
        {
            "S=5": Law(phases=steps),
            "S=20 heavy": Law(phases=steps, mean_s=20.0, sigma=1.5),
            "S=1": Law(phases=steps, mean_s=1.0),
            "latency x2": Law(phases=steps, swell_from=0.8, swell=2.0),
            "Retry-After 2 s": Law(phases=steps, retry_after_s=2.0),
            "noise": Law(phases=steps, noise_ratio=0.1),
        }
    )


def others() -> Mapping[str, Play]:
    """Return what else a limiter meets: other sizes and laws."""
    at_fifty = phases(PHASE_S)
    return _plays(
        {
            "constant": Law(phases=((1800.0, 50.0),)),
            "10-5-10": Law(phases=((600.0, 10.0), (600.0, 5.0), (600.0, 10.0))),
            "4-2-4": Law(phases=((600.0, 4.0), (600.0, 2.0), (600.0, 4.0))),
            "50-5-50": Law(phases=((600.0, 50.0), (600.0, 5.0), (600.0, 50.0))),
            "8, S=60": Law(phases=((1800.0, 8.0),), mean_s=60.0),
            "fixed times": Law(phases=at_fifty, sigma=1e-9),
            "Retry-After 10 s": Law(phases=at_fifty, retry_after_s=10.0),
            "refused after 1 s": Law(phases=at_fifty, refuse_after_s=1.0),
            "noise each 60 s": Law(phases=at_fifty, noise_ratio=0.1, noise_s=60.0),
            "noise each 2 s": Law(phases=at_fifty, noise_ratio=0.1, noise_s=2.0),
            "2 % hang": Law(phases=((1800.0, 50.0),), hung_ratio=0.02, hang_s=30.0),
            "6 % hang": Law(phases=((1800.0, 50.0),), hung_ratio=0.06, hang_s=30.0),
        }
    )


def with_p0(seconds: float = PHASE_S) -> Play:
    """Return S=5 with a place kept for P0, which asks 0.4 times a second."""
    law = Law(phases=phases(seconds))
    return Play(name="P0", law=law, terms=replace(TERMS, reserve=1), p0_per_s=0.4, guard=True)


def sustained() -> Play:
    """Return a provider that refuses everything from 120 s to 420 s."""
    law = Law(phases=((120.0, 50.0), (300.0, 0.0), (180.0, 50.0)))
    return Play(name="sustained", law=law, terms=TERMS)


def slowing(*, guard: bool = True) -> Play:
    """Return a provider that never refuses: beyond 50 calls they share what there is. A quarter of an hour is quiet."""
    law = Law(phases=((3600.0, inf),), knee=50.0, sigma=0.5)
    terms = replace(TERMS, ceiling=400)
    return Play(name="slowing", law=law, terms=terms, offered_per_s=5.0, endless_from_s=900.0, guard=guard)


def outage() -> Play:
    """Return a provider that fails every call for a minute, under twice the load it can take."""
    law = Law(phases=((600.0, 50.0),), down_s=(200.0, 260.0), mean_s=2.0)
    return Play(name="outage", law=law, terms=TERMS, offered_per_s=50.0, breaker=True)


def unused() -> Play:
    """Return a load that uses less than half of the quota."""
    law = Law(phases=((1200.0, 50.0),))
    return Play(name="unused", law=law, terms=TERMS, offered_per_s=4.0)


def of(play: Play, strategy: str) -> Play:
    """Return the play with another strategy."""
    terms = replace(play.terms, ceiling=FIXED) if strategy == "fixed" else play.terms
    return replace(play, strategy=strategy, terms=terms, guard=play.guard and strategy == "csl")


def _plays(laws: Mapping[str, Law]) -> Mapping[str, Play]:
    return {name: Play(name=name, law=law, terms=TERMS, guard=True) for name, law in laws.items()}
