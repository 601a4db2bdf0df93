"""A downstream in virtual time: a quota that moves, latency that spreads and swells, refusals that come back fast.

It decides at the moment a call arrives, and knows nothing of who calls. Same law and seed, same answers.
Invariant: it never has more in flight than its quota was at the time of the last admission.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, inf
from random import Random
from typing import Literal

Answer = Literal["ok", "refused", "failed", "hung"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Law:
    """How a downstream behaves. `phases`: (seconds, quota) one after the other; an infinite quota refuses nobody."""

    phases: tuple[tuple[float, float], ...]
    mean_s: float = 5.0
    sigma: float = 1.0  # of the lognormal of a call's seconds
    spread: float = 0.3  # of the lognormal of its normalised latency (seconds per token)
    refuse_after_s: float = 0.2
    retry_after_s: float = 0.0  # named with a refusal; 0: none
    noise_ratio: float = 0.0  # the quota is drawn again within +- this, every `noise_s`
    noise_s: float = 15.0
    swell_from: float = inf  # share of the quota in flight, above which a call takes `swell` times as long
    swell: float = 1.0
    knee: float = inf  # in flight, above which calls share what there is: no refusal, only latency
    down_s: tuple[float, float] | None = None  # from when to when every call fails
    hung_ratio: float = 0.0  # of the calls, which never answer
    hang_s: float = 60.0  # when the caller gives such a call up

    @property
    def seconds(self) -> float:
        """How long the phases last together."""
        return sum(phase[0] for phase in self.phases)


class Provider:
    """The downstream of one play."""

    def __init__(self, law: Law, rng: Random) -> None:
        self.law = law
        self.in_flight = 0
        self.most = 0
        self._rng = rng
        self._mu = -law.sigma * law.sigma / 2
        self.at_s, self.quotas = _quotas(law, rng)

    def quota(self, now_s: float) -> float:
        """Return the quota at a time."""
        return self.quotas[bisect_right(self.at_s, now_s) - 1]

    def ask(self, now_s: float) -> tuple[Answer, float, float]:
        """Take a call: how it will end, after how many seconds, and its normalised latency (1.0 is undisturbed)."""
        law, rng = self.law, self._rng
        if law.down_s and law.down_s[0] <= now_s < law.down_s[1]:
            return "failed", law.refuse_after_s, 1.0
        if self.in_flight >= self.quota(now_s):
            return "refused", law.refuse_after_s, 1.0
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        if law.hung_ratio and rng.random() < law.hung_ratio:
            return "hung", law.hang_s, 1.0
        slow = max(1.0, self.in_flight / law.knee)
        if self.in_flight > law.swell_from * self.quota(now_s):
            slow *= law.swell
        return "ok", law.mean_s * exp(rng.gauss(self._mu, law.sigma)) * slow, slow * exp(rng.gauss(0.0, law.spread))

    def done(self) -> None:
        """Let a call go that was taken."""
        self.in_flight -= 1


def _quotas(law: Law, rng: Random) -> tuple[list[float], list[float]]:
    """Return when the quota changes, and to what."""
    starts = [0.0]
    for seconds, _ in law.phases:
        starts.append(starts[-1] + seconds)
    at_s: list[float] = []
    quotas: list[float] = []
    for (start_s, end_s), (_, quota) in zip(pairwise(starts), law.phases, strict=True):
        step_s = law.noise_s if law.noise_ratio else end_s - start_s
        moment_s = start_s
        while moment_s < end_s - 1e-9:
            at_s.append(moment_s)
            quotas.append(quota if not law.noise_ratio else _drawn(quota, law.noise_ratio, rng))
            moment_s += step_s
    return at_s, quotas


def _drawn(quota: float, ratio: float, rng: Random) -> float:
    return max(1.0, float(round(quota * rng.uniform(1.0 - ratio, 1.0 + ratio))))


def steps(law: Law) -> Sequence[tuple[float, float, float]]:
    """Return the changes of phase: (when, quota before, quota after)."""
    found, at_s = [], 0.0
    for (seconds, before), (_, after) in pairwise(law.phases):
        at_s += seconds
        found.append((at_s, before, after))
    return found
