"""The course of a storm second by second, as plain values for a picture: pure functions over what was seen."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from benchmarks.limits import judge as provider_judge
from benchmarks.limits.judge import Row
from benchmarks.statistics_of_runs import quantile
from benchmarks.storm import judge
from benchmarks.storm.answers import Answer

T = TypeVar("T", bound=Hashable)
Span = tuple[float, float, T]
WAITS_EVERY_S = 10.0  # the waits of so long are one point: there are few P0 tasks in a second
OUTCOMES = ("accepted", "deferred", "rejected")


def spans(seen: Sequence[tuple[float, T]], until_s: float) -> list[Span[T]]:
    """Return the stretches in which a value stayed the same.

    >>> spans([(0.0, "a"), (1.0, "a"), (2.0, "b")], 5.0)
    [(0.0, 2.0, 'a'), (2.0, 5.0, 'b')]
    """
    found: list[Span[T]] = []
    for at_s, value in seen:
        if found and found[-1][2] == value:
            continue
        if found:
            found[-1] = (found[-1][0], at_s, found[-1][2])
        found.append((at_s, until_s, value))
    return found


def of(
    *,
    began_s: float,
    for_s: float,
    told: Sequence[Answer],
    first_call_s: Mapping[int, float],
    samples: Sequence[Mapping[str, Any]],
    rows: Sequence[Row],
    every_s: float,
) -> dict[str, Any]:
    """Return the course, in seconds since the storm began. `first_call_s`: when each task first called (epoch s)."""
    answered = {
        outcome: judge.by_second([one.sent_s for one in told if one.outcome == outcome], began_s, for_s)
        for outcome in OUTCOMES
    }
    times = [(round(one["at_s"] - began_s, 2), one) for one in samples]
    inside = [(at_s, one) for at_s, one in times if 0 <= at_s <= for_s]
    names = sorted({name for _, one in inside for name, (_, score) in one["signals"].items() if score})
    paused = sorted({pause for _, one in inside for pause in one["pauses"]})
    whole = provider_judge.between(rows, 0.0, for_s)
    return {
        "for_s": for_s,
        "answers_by_s": answered,
        "in_flight_by_s": provider_judge.by_second(whole, every_s, lambda row: row.busy_s),
        "quota_by_s": provider_judge.by_second(whole, every_s, lambda row: row.quota_s),
        "levels": spans([(at_s, one["level"]) for at_s, one in inside], for_s),
        "signals": {
            name: _scored(spans([(at_s, one["signals"].get(name, (0, 0))[1]) for at_s, one in inside], for_s))
            for name in names
        },
        "pauses": {
            pause: [
                (since_s, until_s)
                for since_s, until_s, on in spans([(at_s, pause in one["pauses"]) for at_s, one in inside], for_s)
                if on
            ]
            for pause in paused
        },
        "waiting": [(at_s, one["waiting"]) for at_s, one in inside],
        "p0_wait_p95": _waits(told, first_call_s, began_s, for_s),
    }


def _scored(found: Iterable[Span[int]]) -> list[Span[int]]:
    return [one for one in found if one[2]]


def _waits(
    told: Sequence[Answer], first_call_s: Mapping[int, float], began_s: float, for_s: float
) -> list[tuple[float, float]]:
    """Return (middle of the stretch, 95th of 100 of P0's waits) for each stretch that has any."""
    found = []
    for n in range(int(for_s / WAITS_EVERY_S)):
        since_s = began_s + n * WAITS_EVERY_S
        waits_s = [
            first_call_s.get(one.i, began_s + for_s) - one.sent_s
            for one in told
            if one.priority == 0 and one.outcome != "rejected" and since_s <= one.sent_s < since_s + WAITS_EVERY_S
        ]
        if waits_s:
            found.append(((n + 0.5) * WAITS_EVERY_S, round(quantile(waits_s, 0.95), 3)))
    return found
