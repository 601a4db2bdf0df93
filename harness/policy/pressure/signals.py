"""The signals of pressure: what is measured, in which unit, and from where on it is elevated, high or critical. Pure.

One table. A signal is a number that is worse when it is larger; what it is measured from stands in `facts`, how it is
read in `measure`, and what follows from it in `machine`. A hard signal counts alone, a soft one less (`machine`).
Thresholds may be set in resources.toml (`[pressure.NAME]`); those out of order are refused by their key.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from math import inf
from typing import Literal

from harness.policy.toml import TomlFile

THRESHOLDS = ("elevated", "high", "critical")
SPACING = 1.01  # a threshold is at least so many times the one below: closer, a reading's own noise would jump both


class Level(IntEnum):
    """How much pressure there is. The words are wire values."""

    NORMAL = 0
    ELEVATED = 1
    HIGH = 2
    CRITICAL = 3

    @property
    def word(self) -> str:
        """The level's name.

        >>> Level.HIGH.word, Level.of("high")
        ('high', <Level.HIGH: 2>)
        """
        return self.name.lower()

    @classmethod
    def of(cls, word: str) -> "Level":
        """Return the level of that name. Raises: KeyError."""
        return cls[word.upper()]


@dataclass(frozen=True, kw_only=True, slots=True)
class Signal:
    """One signal. `unit`: "s", or "ratio" of what `what` names. A threshold may be inf: that level is never reached.

    `hard`: it sets the level by itself; `alone`: so does this soft one (rule R7, demand). `capped`: it counts no more
    than somebody waits (R7: a worker that is busy, or a limit in use, is the goal while nobody waits). `over`: how its
    readings of the last 30 s combine: "least": what stands, not a burst; "mean": of a state that is only sampled.
    """

    what: str
    unit: Literal["s", "ratio"]
    elevated: float
    high: float
    critical: float
    hard: bool = False
    alone: bool = False
    capped: bool = False
    over: Literal["last", "mean", "least"] = "last"

    def score(self, value: float, ratio: float = 1.0) -> int:
        """Return 0 to 3: which threshold, times `ratio`, a value has reached.

        >>> [SIGNALS["oldest_age"].score(age_s) for age_s in (29, 30, 299, 300)]
        [0, 1, 2, 3]
        >>> SIGNALS["oldest_age"].score(24, 0.8)
        1
        """
        return sum(value >= threshold * ratio for threshold in (self.elevated, self.high, self.critical))


SIGNALS: Mapping[str, Signal] = {
    "queue_depth": Signal(
        what="tasks that wait for a slot, over what 10 minutes get done",
        unit="ratio",
        elevated=0.5,
        high=1.0,
        critical=3.0,
    ),
    "oldest_age": Signal(
        what="how long the first P1 task has waited for a slot, the least of 30 s",
        unit="s",
        elevated=30.0,
        high=90.0,
        critical=300.0,
        over="least",
    ),
    "p1_wait": Signal(
        what="predicted wait of a new P1 task, over its target of 60 s",
        unit="ratio",
        elevated=0.5,
        high=1.0,
        critical=3.0,
        over="mean",
    ),
    "demand": Signal(
        what="slot-seconds submitted a second, over what there is of pools and limits",
        unit="ratio",
        elevated=1.25,
        high=1.8,
        critical=4.0,
        alone=True,
        over="mean",
    ),
    "worker_busy_ratio": Signal(
        what="slots in use of the pools that have a backlog",
        unit="ratio",
        elevated=0.85,
        high=0.95,
        critical=0.99,
        capped=True,
        over="mean",
    ),
    "llm_rate_limit": Signal(
        what="calls that were answered 429, of all", unit="ratio", elevated=0.01, high=0.03, critical=0.10
    ),
    "llm_in_use": Signal(
        what="calls under way over the limit, of what has a backlog",
        unit="ratio",
        elevated=0.90,
        high=0.97,
        critical=inf,
        capped=True,
        over="mean",
    ),
    "tool_error_rate": Signal(
        what="attempts that their downstream failed (time-out, 5xx, network), of all",
        unit="ratio",
        elevated=0.05,
        high=0.15,
        critical=0.40,
        hard=True,
    ),
    "retry_storm": Signal(
        what="retries over first attempts", unit="ratio", elevated=0.05, high=0.10, critical=0.25, hard=True
    ),
    "db_connection_usage": Signal(
        what="busy connections to the database, of its budget",
        unit="ratio",
        elevated=0.70,
        high=0.85,
        critical=0.95,
        hard=True,
        over="mean",
    ),
    "db_pool_wait": Signal(
        what="wait for a connection to a database, the 95th of 100",
        unit="s",
        elevated=0.25,
        high=1.0,
        critical=2.0,
        hard=True,
    ),
    "http_pool_wait": Signal(
        what="wait for a connection to a downstream beside its permit, the 95th of 100",
        unit="s",
        elevated=0.25,
        high=1.0,
        critical=4.0,
    ),
    "p95_task_latency": Signal(
        what="time of the slowest 5 of 100 tasks of each kind, over that of the last day",
        unit="ratio",
        elevated=1.5,
        high=2.5,
        critical=5.0,
    ),
    "tenant_fairness": Signal(
        what="1 - Jain's index of the service to tenants that wait in the same class",
        unit="ratio",
        elevated=0.2,
        high=0.4,
        critical=0.6,
    ),
}
WAITS = ("p1_wait", "oldest_age", "queue_depth")  # somebody waits by so much: what `capped` is capped by

_FILE = TomlFile("resources.toml")


def parse(raw: Mapping[str, object]) -> Mapping[str, Signal]:
    """Return the signals with the thresholds of the table [pressure]. Raises: Invalid naming the key."""
    _FILE.only(raw, set(SIGNALS), "pressure.")
    return {name: _parsed(name, one, raw) if name in raw else one for name, one in SIGNALS.items()}


def _parsed(name: str, signal: Signal, raw: Mapping[str, object]) -> Signal:
    at = f"pressure.{name}."
    table = _FILE.table(raw, name, "pressure.")
    _FILE.only(table, set(THRESHOLDS), at)
    values: dict[str, float] = {}
    below = 0.0
    for key in THRESHOLDS:
        value = table.get(key, getattr(signal, key))
        # inf stands in a table as `inf`: TOML knows it, and it is how a level is never reached.
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            _FILE.refuse(at + key, f"must be a number above 0, not {value!r}")
        if below and not value >= SPACING * below and value != inf:
            before = THRESHOLDS[THRESHOLDS.index(key) - 1]
            _FILE.refuse(at + key, f"must be above {before} ({below:g}), not {value:g}")
        values[key] = below = float(value)
    return replace(signal, elevated=values["elevated"], high=values["high"], critical=values["critical"])
