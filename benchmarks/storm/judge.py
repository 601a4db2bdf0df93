"""What a storm came to: pure functions over what clients were told and what was done. Epoch seconds throughout."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from benchmarks.effects import Effect
from benchmarks.statistics_of_runs import quantile
from benchmarks.storm.answers import Answer


@dataclass(frozen=True, kw_only=True, slots=True)
class Window:
    """A stretch of time, and the seconds within which a task is of use."""

    since_s: float
    until_s: float
    deadline_s: float

    @property
    def for_s(self) -> float:
        """Its length."""
        return self.until_s - self.since_s

    def has(self, at_s: float) -> bool:
        """Whether a moment lies in it."""
        return self.since_s <= at_s < self.until_s


def useful_per_s(done: Sequence[Effect], window: Window) -> float:
    """Return the tasks a second that ended in the window and within their deadline, each of them once."""
    seen = {one.i for one in done if window.has(one.ended_s) and one.ended_s - one.submitted_s <= window.deadline_s}
    return round(len(seen) / window.for_s, 3)


def late(done: Sequence[Effect], window: Window) -> int:
    """Return how many tasks ended in the window, but too late for anybody."""
    return sum(window.has(one.ended_s) and one.ended_s - one.submitted_s > window.deadline_s for one in done)


def given_up(told: Sequence[Answer], done: Sequence[Effect], window: Window) -> float | None:
    """Return the share of what the door took, and that was not done within its deadline.

    Of submissions of the window whose deadline lies in it. None: there were none.
    """
    taken = {
        one.i
        for one in told
        if one.outcome != "rejected" and window.since_s <= one.sent_s < window.until_s - window.deadline_s
    }
    in_time = {one.i for one in done if one.ended_s - one.submitted_s <= window.deadline_s}
    return round(len(taken - in_time) / len(taken), 4) if taken else None


def waits_s(
    told: Sequence[Answer], begun: Sequence[Effect], window: Window, priorities: Collection[int]
) -> list[float]:
    """Return how long each task of these priorities waited from its submission to its first call.

    Of submissions of the window. What was taken and never began has waited until the end, and counts.
    """
    first: dict[int, float] = {}
    for one in begun:
        first[one.i] = min(first.get(one.i, one.started_s), one.started_s)
    return [
        max(0.0, first.get(one.i, window.until_s) - one.sent_s)
        for one in told
        if one.priority in priorities and one.outcome != "rejected" and window.has(one.sent_s)
    ]


def p0(told: Sequence[Answer], begun: Sequence[Effect], window: Window) -> dict[str, Any]:
    """Return the waits of P0, and how many of it were refused."""
    found = waits_s(told, begun, window, (0,))
    refused = sum(one.priority == 0 and one.outcome == "rejected" and window.has(one.sent_s) for one in told)
    return {
        "p0_wait_p50_s": round(quantile(found, 0.5), 3) if found else None,
        "p0_wait_p95_s": round(quantile(found, 0.95), 3) if found else None,
        "p0_submitted": len(found) + refused,
        "p0_rejected": refused,
    }


def door(told: Sequence[Answer], window: Window) -> dict[str, Any]:
    """Return what the door said within the window, by outcome, status and reason, and how quickly."""
    inside = [one for one in told if window.has(one.sent_s)]
    rejects_ms = [1000 * one.took_s for one in inside if one.outcome == "rejected"]
    takes_ms = [1000 * one.took_s for one in inside if one.outcome != "rejected"]
    return {
        "submitted": len(inside),
        "by_outcome": dict(Counter(one.outcome for one in inside)),
        "by_priority": {
            f"P{priority}": dict(Counter(one.outcome for one in inside if one.priority == priority))
            for priority in sorted({one.priority for one in inside})
        },
        "by_why": dict(Counter(f"{one.status} {one.why}".strip() for one in inside if one.outcome == "rejected")),
        "reject_p95_ms": round(quantile(rejects_ms, 0.95), 1) if rejects_ms else None,
        "accept_p95_ms": round(quantile(takes_ms, 0.95), 1) if takes_ms else None,
        "without_retry_after": sum(
            one.outcome == "rejected" and one.status in (429, 503) and one.retry_after_s is None for one in inside
        ),
        "sent_late_s": round(max((one.sent_s - one.due_s for one in inside), default=0.0), 3),
    }


def by_second(moments_s: Sequence[float], since_s: float, for_s: float) -> list[int]:
    """Return how many of the moments lie in each second since `since_s`.

    >>> by_second([10.1, 10.9, 12.0, 99.0], 10.0, 3.0)
    [2, 0, 1]
    """
    counted = Counter(int(at_s - since_s) for at_s in moments_s if at_s >= since_s)
    return [counted[second] for second in range(int(for_s))]


def normal_again_s(levels: Sequence[tuple[float, str]], after_s: float) -> float | None:
    """Return how long after `after_s` the level was normal and stayed so. `levels`: (moment, level) in order.

    >>> normal_again_s([(0.0, "normal"), (5.0, "high"), (20.0, "elevated"), (30.0, "normal")], 10.0)
    20.0
    >>> normal_again_s([(0.0, "normal"), (5.0, "high")], 10.0), normal_again_s([(0.0, "normal")], 10.0)
    (None, 0.0)
    """
    if not levels or levels[-1][1] != "normal":
        return None
    since_s = levels[-1][0]
    for at_s, level in reversed(levels):
        if level != "normal":
            break
        since_s = at_s
    return round(max(0.0, since_s - after_s), 1)


def transitions(levels: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """Return the moments at which the level became another, with what it became.

    >>> transitions([(0.0, "normal"), (1.0, "normal"), (2.0, "high"), (3.0, "normal")])
    [(2.0, 'high'), (3.0, 'normal')]
    """
    return [now for before, now in pairwise(levels) if before[1] != now[1]]


def headline(found: Mapping[str, Mapping[str, Any]], keys: Sequence[str], prefix: str = "") -> dict[str, Any]:
    """Return figures by play for the top of a report: {goodput_ratio: {2x: .., 5x: ..}}."""
    return {f"{prefix}{key}": {play: one.get(key) for play, one in found.items()} for key in keys}
