"""Evaluations of the pressure as they were, for charts of the last hour and day. Nobody decides by them.

Every one is kept for WHOLE_S, and then one in APART_S for KEPT_S: some 1,200 rows in all.
"""

import json
from collections.abc import Mapping
from dataclasses import astuple, dataclass

from harness.policy.pressure import Level, Reading
from harness.policy.pressure.course import Course, Stood
from harness.store import sql
from harness.store.database import Connection

WHOLE_S = 4_200.0
APART_S = 300.0
KEPT_S = 90_000.0  # a day and an hour


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """One evaluation, or the last of a span. `signals`: value and score by name; `at_s` in epoch seconds."""

    at_s: float
    level: Level
    signals: Mapping[str, tuple[float, int]]
    resources: Mapping[str, Stood]


@dataclass(frozen=True, slots=True)
class Used:
    """A tenant's use of late, in slot-seconds a second; tenant 0: all that aren't told by themselves."""

    tenant: int
    name: str
    weight: float
    used: float


def keep(connection: Connection, level: Level, readings: Mapping[str, Reading], course: Course) -> None:
    """Keep one evaluation, and drop what is old. In the transaction that wrote the level."""
    connection.execute(
        sql.load("evaluations/keep"),
        {
            "level": int(level),
            "signals": json.dumps(
                {name: (round(one.value, 4), one.score) for name, one in readings.items() if not one.missing}
            ),
            "resources": json.dumps({name: astuple(one) for name, one in course.resources.items()}),
            "tenants": json.dumps({str(tenant): round(used, 4) for tenant, used in course.tenants.items()}),
            "whole_s": WHOLE_S,
            "apart_s": APART_S,
            "kept_s": KEPT_S,
        },
    )


def since(connection: Connection, *, seconds: float, each_s: float) -> list[Evaluation]:
    """Return the last evaluation of each span of `each_s` in the last `seconds`, the oldest first."""
    cursor = connection.execute(sql.load("evaluations/since"), {"since_s": seconds, "each_s": each_s})
    return [
        Evaluation(
            at_s=at_s,
            level=Level(level),
            signals={name: (value, score) for name, (value, score) in signals.items()},
            resources={name: Stood(*one) for name, one in resources.items()},
        )
        for at_s, level, signals, resources in cursor
    ]


def used(connection: Connection, *, seconds: float) -> list[Used]:
    """Return what tenants used in the mean of the last `seconds`, the most first."""
    return [Used(*row) for row in connection.execute(sql.load("evaluations/used"), {"since_s": seconds})]
