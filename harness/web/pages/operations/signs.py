"""Signals in words: what each is called, how its figures are said, where it stands to its next threshold. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal

from django.utils.safestring import SafeString

from harness.policy.pressure import Level, Reading, Signal
from harness.policy.pressure.measure import DEPTH_S, TARGET_S
from harness.store.evaluations import Evaluation
from harness.web.pages.operations import charts
from harness.web.pages.words import NB

Unit = Literal["s", "work", "target", "percent", "times", "usual"]


@dataclass(frozen=True, slots=True)
class Words:
    """A signal's name, and how its figures are said: seconds, minutes of work, over the target of a wait, a share .."""

    label: str
    unit: Unit


WORDS: Mapping[str, Words] = {
    "llm_rate_limit": Words("Provider 429s", "percent"),
    "p1_wait": Words("P1 wait", "target"),
    "oldest_age": Words("Oldest P1", "s"),
    "queue_depth": Words("Backlog", "work"),
    "worker_busy_ratio": Words("Workers busy", "percent"),
    "tool_error_rate": Words("Call errors", "percent"),
    "retry_storm": Words("Retries", "percent"),
    "llm_in_use": Words("Limit in use", "percent"),
    "demand": Words("Demand", "times"),
    "p95_task_latency": Words("p95 latency", "usual"),
    "db_connection_usage": Words("Database busy", "percent"),
    "db_pool_wait": Words("Database wait", "s"),
    "http_pool_wait": Words("HTTP pool wait", "s"),
    "tenant_fairness": Words("Uneven shares", "percent"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Sign:
    """A signal as the page shows it. `level`: normal, elevated ..; `limit`: of its threshold, in words."""

    name: str
    label: str
    level: str
    value: str
    limit: str
    chart: SafeString
    what: str

    @property
    def hot(self) -> bool:
        """Whether it is out of range."""
        return self.level != "normal"


def signs(
    signals: Mapping[str, Signal],
    readings: Mapping[str, Reading],
    hour: Sequence[Evaluation],
    *,
    from_s: float,
    to_s: float,
) -> list[Sign]:
    """Return every signal, in the order of WORDS."""
    return [
        _sign(name, signals[name], readings.get(name), hour, from_s=from_s, to_s=to_s)
        for name in WORDS
        if name in signals
    ]


def said(name: str, value: float) -> str:
    """Return a signal's figure in words.

    >>> said("llm_rate_limit", 0.034), said("queue_depth", 0.41), said("p1_wait", 1.183), said("http_pool_wait", 0.011)
    ('3.4\\xa0%', '4.1\\xa0min', '71\\xa0s', '11\\xa0ms')
    >>> said("demand", 1.3), said("oldest_age", 300.0), said("worker_busy_ratio", 1.0), said("retry_storm", 0.0)
    ('1.3\\xa0×', '5\\xa0min', '100\\xa0%', '0\\xa0%')
    """
    match WORDS[name].unit:
        case "percent":
            return f"{_plain(100 * value)}{NB}%"
        case "work":
            return f"{_plain(value * DEPTH_S / 60)}{NB}min"
        case "target":
            return _seconds(value * TARGET_S)
        case "s":
            return _seconds(value)
        case _:
            return f"{value:.3g}{NB}×"


def named(readings: Mapping[str, Reading], *, least: int = 1) -> str:
    """Return the signals that score `least` or more, the worst first, each with its figure.

    >>> named({"llm_rate_limit": Reading(value=0.034, score=2), "demand": Reading(value=0.5, score=0)})
    'provider 429s at 3.4\\xa0%'
    """
    worst = sorted(
        ((name, one) for name, one in readings.items() if one.score >= least and name in WORDS and not one.missing),
        key=lambda item: (-item[1].score, list(WORDS).index(item[0])),
    )
    told = [f"{lower(WORDS[name].label)} at {said(name, one.value)}" for name, one in worst]
    return told[0] if len(told) == 1 else ", ".join(told[:-1]) + (f" and {told[-1]}" if told else "")


def lower(label: str) -> str:
    """Return a label within a sentence.

    >>> lower("Provider 429s"), lower("P1 wait"), lower("HTTP pool wait")
    ('provider 429s', 'P1 wait', 'HTTP pool wait')
    """
    first = label.split(maxsplit=1)[0]
    return label if first.isupper() or first[1:2].isdigit() else label[:1].lower() + label[1:]


def _sign(
    name: str, signal: Signal, now: Reading | None, hour: Sequence[Evaluation], *, from_s: float, to_s: float
) -> Sign:
    words = WORDS[name]
    values = [(one.at_s, one.signals[name][0]) for one in hour if name in one.signals]
    score = 0 if now is None or now.missing else now.score
    thresholds = (signal.elevated, signal.high, signal.critical)
    shown = thresholds[max(0, score - 1)]
    what = (Level.ELEVATED, Level.HIGH, Level.CRITICAL)[max(0, score - 1)].word
    limit = f"{what} from {_threshold(name, shown)}" if shown != inf else ""
    peak = max((value for _, value in values), default=0.0)
    if score and now is not None and peak > 1.05 * now.value:
        limit += f", peak {said(name, peak)}"
    return Sign(
        name=name,
        label=words.label,
        level=Level(score).word,
        value="not read" if now is None or now.missing else said(name, now.value),
        limit=limit,
        chart=charts.line(values, from_s=from_s, to_s=to_s, threshold=None if shown == inf else shown),
        what=signal.what,
    )


def _threshold(name: str, value: float) -> str:
    more = {"work": " of work", "usual": " usual", "times": " capacity"}.get(WORDS[name].unit, "")
    return said(name, value) + more


def _seconds(value: float) -> str:
    if value < 0.9995:
        return f"{1000 * value:.0f}{NB}ms"
    if value < 120:
        return f"{_plain(value)}{NB}s"
    return f"{_plain(value / 60)}{NB}min" if value < 7200 else f"{_plain(value / 3600)}{NB}h"


def _plain(value: float) -> str:
    """As exact as anybody needs it: two digits, or whole."""
    return f"{value:.0f}" if value >= 9.95 else f"{value:.2g}"
