"""How long an answer takes and what goes wrong with it: the dice of the emulator, thrown in the order of the calls."""

import enum
import random

from harness.ops.emulator.behaviour import Behaviour


class Fault(enum.Enum):
    """An end that an accepted call takes instead of an answer."""

    ERROR = "error"
    HANG = "hang"
    DROP = "drop"
    CUT = "cut"


class Dice:
    """Draws from one generator: with the same seed and the same order of calls, the same ends and latencies."""

    def __init__(self, generator: random.Random) -> None:
        self._random = generator

    def fault(self, behaviour: Behaviour) -> Fault | None:
        """Return what goes wrong with the next call; one draw, none while every rate is 0."""
        error, hang, drop, cut = (
            behaviour.error_rate, behaviour.hang_rate, behaviour.drop_rate, behaviour.cut_rate,
        )  # fmt: skip
        if not (error or hang or drop or cut):
            return None
        drawn = self._random.random()
        for rate, fault in ((error, Fault.ERROR), (hang, Fault.HANG), (drop, Fault.DROP), (cut, Fault.CUT)):
            if drawn < rate:
                return fault
            drawn -= rate
        return None

    def latency_s(self, behaviour: Behaviour, in_flight: int) -> float:
        """Return median * lognormal(sigma) * inflation, fixed when the call is let in as one of `in_flight`.

        Its mean is median * exp(sigma^2 / 2), without slowness.
        """
        latency_s = behaviour.latency_s
        if behaviour.sigma:
            latency_s *= self._random.lognormvariate(0.0, behaviour.sigma)
        return latency_s * inflation(behaviour, in_flight) * slowness(behaviour, in_flight)


def inflation(behaviour: Behaviour, in_flight: int) -> float:
    """Return the factor at a load: 1 up to inflation_from, then in a line up to `inflation` at inflation_full.

    >>> half_way = Behaviour(quota=10, inflation=3, inflation_from=0.8, inflation_full=1.0)
    >>> [round(inflation(half_way, n), 3) for n in (1, 8, 9, 10)]
    [1.0, 1.0, 2.0, 3.0]

    With inflation_from = inflation_full it is a step, just above that load.
    """
    if behaviour.inflation <= 1 or behaviour.quota == 0:
        return 1.0
    begin, full = behaviour.inflation_from, behaviour.inflation_full
    load = in_flight / behaviour.quota
    if load <= begin:
        return 1.0
    share = 1.0 if load >= full else (load - begin) / (full - begin)
    return 1 + (behaviour.inflation - 1) * share


def slowness(behaviour: Behaviour, in_flight: int) -> float:
    """Return the factor of a provider that refuses nobody and shares its power among all.

    >>> [slowness(Behaviour(slow_from=10), n) for n in (1, 10, 15)]
    [1.0, 1.0, 1.5]
    """
    return max(1.0, in_flight / behaviour.slow_from) if behaviour.slow_from else 1.0


def quota_at(behaviour: Behaviour, seed: int, passed_s: float) -> int:
    """Return the quota after so many seconds, for one seed always the same; 0 stays 0, and 1 is the least of others.

    >>> quota_at(Behaviour(quota=50), 1, 1000.0)
    50
    >>> noisy = Behaviour(quota=50, noise_ratio=0.1, noise_every_s=15)
    >>> [quota_at(noisy, 1, at_s) for at_s in (0.0, 14.9, 15.0, 30.0)]
    [55, 55, 51, 55]
    """
    if not behaviour.noise_ratio or not behaviour.quota:
        return behaviour.quota
    drawn = random.Random(f"{seed} {int(passed_s // behaviour.noise_every_s)}").uniform(-1.0, 1.0)
    return max(1, round(behaviour.quota * (1 + behaviour.noise_ratio * drawn)))
