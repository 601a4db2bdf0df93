"""What a play of a limiter comes to: use of the quota, refusals, and how long a step of the quota takes to be followed.

Figures from a tally. Ratios are of 1; seconds from the step.
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from math import inf

from harness.policy.limits.csl import CANARY_MOST_S, EPSILON
from harness.sim.calls import Caller, Play, Tally
from harness.sim.provider import Provider, steps

NEAR = 0.05  # a step is followed in the first second whose mean in flight is within 5 % of the quota
FALLEN_S = 30.0  # how long calls may take to fall to the probing floor
Figures = Mapping[str, float]


def played(play: Play, seed: int) -> Figures:
    """Play it and return its figures."""
    caller = Caller(play, seed)
    tally = caller.run()
    found = figures(play, caller.provider, tally)
    if play.law.down_s:
        found |= _outage(tally, *play.law.down_s)
    return found


def figures(play: Play, provider: Provider, tally: Tally) -> dict[str, float]:
    """Return the figures of a tally."""
    law = play.law
    quota = sum(provider.quota(second + 0.5) for second in range(tally.seconds))
    calls = sum(tally.sends)
    found: dict[str, float] = {
        "utilisation": sum(tally.useful) / quota,
        "rate_429": tally.refused / calls if calls else 0.0,
        "calls": float(calls),
        "ok": float(tally.ok),
        "limit_most": tally.limit_most,
        "t95_start_s": followed_s(tally, provider, 0.0, law.phases[0][0]),
    }
    for (at_s, before, after), (end_s, _, _) in pairwise([*steps(law), (law.seconds, 0.0, 0.0)]):
        name = "t95_down_s" if after < before else "t95_up_s"
        found[name] = max(found.get(name, 0.0), followed_s(tally, provider, at_s, end_s - at_s))
        if not after:
            fallen_s = int(at_s + FALLEN_S)
            found["calls_per_s_under_429"] = sum(tally.sends[fallen_s : int(end_s)]) / (end_s - fallen_s)
    if tally.p0_waits_s:
        found["p0_wait_p95_s"] = sorted(tally.p0_waits_s)[int(0.95 * len(tally.p0_waits_s))]
    return found


def followed_s(tally: Tally, provider: Provider, at_s: float, most_s: float) -> float:
    """Return the seconds from `at_s` to the end of the first in which the quota was used; `most_s`: it wasn't."""
    for second in range(int(at_s), int(at_s + most_s)):
        quota = provider.quota(second + 0.5)
        if abs(tally.taken[second] - quota) <= NEAR * quota + 1e-9:
            return second + 1.0 - at_s
    return most_s


def _outage(tally: Tally, from_s: float, until_s: float) -> dict[str, float]:
    begins, ends = int(from_s), int(until_s)
    before = sum(tally.ends[begins - 60 : begins]) / 60
    seconds = range(ends, tally.seconds - 5)
    back = next((second for second in seconds if sum(tally.ends[second : second + 5]) / 5 >= 0.95 * before), inf)
    return {
        "recovery_s": back - ends,
        "retry_ratio": tally.retries / tally.firsts,
        "sends_in_outage": float(sum(tally.sends[begins:ends])),
        "sent_while_open": float(tally.sent_while_open),
    }


def bounds_s(play: Play) -> tuple[float, float]:
    """Return the most that a step down and a step up may take: 1.5 S + 10 s, and 2 S / (epsilon q) + 20 s."""
    least = min(quota for _, quota in play.law.phases if quota)
    return 1.5 * play.law.mean_s + 10.0, 2.0 * play.law.mean_s / (EPSILON * least) + 20.0


def missed(play: Play, found: Iterable[Figures], *, use: float, refused: float) -> list[str]:
    """Say which of the figures to reach several seeds of a play missed; steps by their mean, the others each."""
    every = list(found)
    down_s, up_s = bounds_s(play)
    lines = []
    for figure, value, most in (
        ("1 - utilisation", max(1.0 - one["utilisation"] for one in every), 1.0 - use),
        ("rate_429", max(one["rate_429"] for one in every), refused),
        ("mean t95_down_s", mean(every, "t95_down_s"), down_s),
        ("mean t95_up_s", mean(every, "t95_up_s"), up_s),
    ):
        if value > most:
            lines.append(f"{play.name}: {figure} is {value:.4g}, above {most:.4g}")
    return lines


def mean(found: Iterable[Figures], figure: str) -> float:
    """Return the mean of a figure; 0 when it isn't there."""
    values = [one.get(figure, 0.0) for one in found]
    return sum(values) / len(values)


def probing_floor_per_s() -> float:
    """Return the calls a second that a resource gets that refuses everything."""
    return 1.0 / CANARY_MOST_S
