"""Measures of an effect log: waits, slot-seconds in windows, Jain's index, makespans. Pure; times in epoch seconds."""

from collections.abc import Mapping, Sequence

from benchmarks.effects import Effect


def waits_s(effects: Sequence[Effect]) -> list[float]:
    """Return how long each task waited, from the call that submitted it to the first line of its body."""
    return [one.started_s - one.submitted_s for one in effects]


def makespan_s(*several: Sequence[Effect]) -> float:
    """Return the seconds from the first submit to the last end; NaN for no effect."""
    every = [one for effects in several for one in effects]
    if not every:
        return float("nan")
    return max(one.ended_s for one in every) - min(one.submitted_s for one in every)


def busy_s(effects: Sequence[Effect], since_s: float, until_s: float) -> float:
    """Return the slot-seconds used between two moments.

    >>> one = Effect(mark="D", tag="a", i=0, submitted_s=0.0, started_s=1.0, ended_s=3.0, pid=1)
    >>> busy_s([one, one], 0.0, 2.0)
    2.0
    """
    return sum(max(0.0, min(one.ended_s, until_s) - max(one.started_s, since_s)) for one in effects)


def at_once(effects: Sequence[Effect]) -> int:
    """Return how many bodies ran at once, at most."""
    steps = sorted([(one.started_s, 1) for one in effects] + [(one.ended_s, -1) for one in effects])
    now = most = 0
    for _, step in steps:
        now += step
        most = max(most, now)
    return most


def jain(values: Sequence[float]) -> float:
    """Return Jain's index: 1 when all are equal, 1/n when one has everything.

    >>> jain([2.0, 2.0]), jain([1.0, 0.0]), jain([])
    (1.0, 0.5, 1.0)
    """
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def jain_windows(
    by_tenant: Mapping[str, Sequence[Effect]],
    weights: Mapping[str, float],
    *,
    since_s: float,
    until_s: float,
    window_s: float,
    step_s: float,
) -> list[float]:
    """Return Jain's index of slot-seconds over weight in every window that fits between two moments."""
    found: list[float] = []
    start_s = since_s
    while start_s + window_s <= until_s + 1e-9:
        found.append(
            jain([busy_s(mine, start_s, start_s + window_s) / weights[name] for name, mine in by_tenant.items()])
        )
        start_s += step_s
    return found


def shares(by_name: Mapping[str, Sequence[Effect]], since_s: float, until_s: float) -> dict[str, float]:
    """Return each one's share of the slot-seconds that all of them used between two moments."""
    used = {name: busy_s(effects, since_s, until_s) for name, effects in by_name.items()}
    total = sum(used.values())
    return {name: round(value / total, 4) if total else 0.0 for name, value in used.items()}
