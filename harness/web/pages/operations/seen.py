"""What the operations page is drawn from: one look at the database a process every FRESH_S, however many watch.

Read under role `staff`, which sees every tenant: who may ask is settled before (harness.web.pages.shell.operators).
What changes slowly or costs more is kept for longer: charts CHARTS_S, dead letters LETTERS_S.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from django.conf import settings

from harness.engine import expect, letters
from harness.engine.letters import Groups
from harness.policy.pressure import Reading
from harness.policy.resources import Live
from harness.store import (
    autoscale,
    evaluations,
    findings,
    forecasts,
    operations,
    pauses,
    pressure,
    resources,
    staff,
)
from harness.store.autoscale import Standing as Advised
from harness.store.database import Connection
from harness.store.evaluations import Evaluation, Used
from harness.store.operations import Act, Now, Refused, Waiting
from harness.store.pauses import PauseRow
from harness.store.pressure import Stored, Turned
from harness.store.resources import Change, ResourceNow
from harness.web.service import service

T = TypeVar("T")

FRESH_S = 2.0
CHARTS_S = 10.0
LETTERS_S = 10.0
HOUR_S, HOUR_EACH_S = 3_600.0, 30.0
DAY_S, DAY_EACH_S = 86_400.0, 600.0
SHARE_S = 600.0  # over which tenants' use is told
REFUSED_MIN = 10
LETTERS_MOST = 500  # looked at: some 30 ms
TURNS, LIMITS, ACTS = 8, 200, 12


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """All of it, at `at_s` (epoch seconds, by the database's clock). `level` None: nobody has evaluated yet."""

    at_s: float
    level: Stored | None
    readings: Mapping[str, Reading]
    turns: Sequence[Turned]
    now: Now
    waiting: Sequence[Waiting]
    advice: Mapping[str, Advised]
    live: Mapping[str, Live]
    kept: Mapping[str, ResourceNow]
    limits: Sequence[Change]
    pauses: Sequence[PauseRow]
    hour: Sequence[Evaluation]
    used: Sequence[Used]
    refused: Sequence[Refused]
    tenants: Mapping[int, tuple[str, float]]
    acts: Sequence[Act]
    letters: Groups
    forecasts: Mapping[str, object]
    findings: int

    @property
    def counted_all(self) -> bool:
        """Whether all that waits was counted."""
        return sum(one.n for one in self.waiting) < operations.TASKS_MOST


async def look() -> Seen:
    """Return how all stands, at most FRESH_S old. Raises: Unavailable."""
    return await _once("now", FRESH_S, _read)


async def day() -> Sequence[Evaluation]:
    """Return the evaluations of the last day. Raises: Unavailable."""
    return await _once("day", CHARTS_S, lambda connection: _course(connection, DAY_S, DAY_EACH_S))


def forget() -> None:
    """Have the next look read anew: somebody has just changed something."""
    _looked.pop("now", None)


_looked: dict[str, tuple[float, object]] = {}


async def _once(name: str, fresh_s: float, read: Callable[[Connection], T]) -> T:
    """Return what was read at most `fresh_s` ago; one reads, the others wait for it."""
    async with _alone(asyncio.get_running_loop(), name):
        found = _looked.get(name)
        if found is None or time.monotonic() - found[0] > fresh_s:
            began_s = time.monotonic()
            found = _looked[name] = (began_s, await service().on_thread(lambda: _connected(read)))
        return found[1]  # type: ignore[return-value]  # what `read` gave


@cache
def _alone(loop: asyncio.AbstractEventLoop, name: str) -> asyncio.Lock:
    return asyncio.Lock()


def _connected(read: Callable[[Connection], T]) -> T:
    with staff.own_connection(None) as connection:
        return read(connection)


def _kept(name: str, fresh_s: float, read: Callable[[], T]) -> T:
    found = _looked.get(name)
    if found is None or time.monotonic() - found[0] > fresh_s:
        found = _looked[name] = (time.monotonic(), read())
    return found[1]  # type: ignore[return-value]  # what `read` gave


def _course(connection: Connection, since_s: float, each_s: float) -> Sequence[Evaluation]:
    return evaluations.since(connection, seconds=since_s, each_s=each_s)


def _read(connection: Connection) -> Seen:
    configured = settings.HARNESS_TOPOLOGY.resources
    row = connection.execute("SELECT extract(epoch FROM clock_timestamp())::double precision").fetchone()
    assert row is not None
    waiting = operations.waiting(connection)
    used = _kept("used", CHARTS_S, lambda: evaluations.used(connection, seconds=SHARE_S))
    refused = operations.refused(connection, minutes=REFUSED_MIN)
    return Seen(
        at_s=row[0],
        level=pressure.last(connection),
        readings=pressure.readings(connection),
        turns=pressure.changes(connection, most=TURNS),
        now=operations.now(connection),
        waiting=waiting,
        advice=autoscale.now(connection),
        live=resources.effective(connection, configured),
        kept=resources.kept(connection),
        limits=resources.changes(connection, most=LIMITS),
        pauses=pauses.in_force(connection),
        hour=_kept("hour", CHARTS_S, lambda: _course(connection, HOUR_S, HOUR_EACH_S)),
        used=used,
        refused=refused,
        tenants=operations.names(connection, sorted({one.tenant for one in waiting})),
        acts=operations.acts(connection, most=ACTS),
        letters=_kept("letters", LETTERS_S, lambda: letters.groups(connection, tenant=None, most=LETTERS_MOST)),
        forecasts=_kept("forecasts", CHARTS_S, lambda: expect.published(forecasts.last_pass(connection))),
        findings=_kept("findings", CHARTS_S, lambda: sum(one.open for one in findings.counts(connection).values())),
    )
