"""The stage `observe`: what Redis knows of limits, breakers and calls is kept in PostgreSQL, every few seconds.

A beat brings it to the pool `system`. Two at once do it once (an advisory lock); one that dies between its commit and
what it tells Redis does it again, and writes no change twice. Nothing waits for it: after Redis was emptied all begin
with what was kept last, so without it they begin with older values. Then it evaluates the pressure (engine.pressure),
and what that means for the number of workers (engine.autoscale).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Protocol

from harness.engine import autoscale, pressure
from harness.engine.pressure import alone
from harness.engine.readings import Reads
from harness.policy.calls import Reading
from harness.policy.permits import Change
from harness.policy.resources import Live, Resource
from harness.policy.settings import Topology
from harness.store import overrides, resources
from harness.store.database import Connection
from harness.store.permits import Permits
from harness.store.resources import ResourceNow
from harness.telemetry import logs

SAME_S = 1e-3  # two changes of one limit to one value closer than this are one: it comes from Redis with 6 digits
TURNS_MOST = 20  # of a thousand changes each; what is left is kept the next time

log = logs.get(__name__)


class Keeper(Reads, Protocol):
    """The permits, as who keeps them sees them (store.permits)."""

    def changes(self) -> Sequence[Change]:
        """Return the oldest changes of limits that aren't kept yet."""
        ...

    def kept(self, last_id: str) -> None:
        """Say that all changes up to this one are kept."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Observed:
    """What a round did. `skipped`: another was at it. `away`: Redis couldn't be read, so the last values hold."""

    skipped: bool = False
    away: bool = False
    states: int = 0
    changes: int = 0
    overrides_over: int = 0
    judged: pressure.Judged = field(default_factory=pressure.Judged)


def observe(connection: Connection, topology: Topology, url: str) -> Observed:
    """Do one round. `url`: of the Redis with the permits. Raises: psycopg.Error."""
    live = resources.effective(connection, topology.resources)
    reader, now = _permits(url)
    now.clear()
    now.update(live)
    found = replace(keep(connection, topology.resources, live, reader), judged=pressure.judge(connection, topology))
    autoscale.advise(connection, topology, found.judged)
    return found


def keep(
    connection: Connection, configured: Mapping[str, Resource], live: Mapping[str, Live], permits: Keeper
) -> Observed:
    """Keep what permits say of resources, and end the overrides that are over. Raises: psycopg.Error."""
    over = overrides.end_over(connection, configured)
    # 1. Load, before the lock: Redis may take its time to be away
    readings = permits.read([name for name, one in live.items() if one.resource.held == "call"])
    if readings is None:
        return Observed(away=True, overrides_over=over)
    # 2. Commit the states, and the changes page by page; then tell Redis how far they are kept
    states = changes = 0
    seen = [_state(name, reading) for name, reading in readings.items()]
    for _ in range(TURNS_MOST):
        page = permits.changes()
        with connection.transaction():
            if not alone(connection):
                return Observed(skipped=True, overrides_over=over)
            n, m = resources.keep(connection, seen, _new(connection, page))
            states, changes = states + n, changes + m
        if not page:
            break
        permits.kept(page[-1].id)
        seen = []
    return Observed(states=states, changes=changes, overrides_over=over)


def _new(connection: Connection, page: Sequence[Change]) -> list[resources.Change]:
    """Return the changes that were not written before a round that died could say so."""
    if not page:
        return []
    written = resources.written_since(connection, min(one.at_s for one in page) - SAME_S)
    return [
        resources.Change(
            resource=one.resource, at_s=one.at_s, old=one.old, new=one.new, reason=one.reason, mode=one.mode
        )
        for one in page
        if not any(
            resource == one.resource and new == one.new and reason == one.reason and abs(at_s - one.at_s) < SAME_S
            for resource, at_s, new, reason in written
        )
    ]


def _state(name: str, reading: Reading) -> ResourceNow:
    return ResourceNow(
        resource=name,
        limit_now=reading.limit,
        proven=reading.proven or None,
        mode=reading.mode,
        breaker=reading.breaker,
        breaker_until_s=reading.breaker_until_s or None,
        blocked_until_s=reading.blocked_until_s or None,
        in_flight=reading.in_flight,
        waiting=reading.waiting,
    )


@lru_cache(maxsize=1)
def _permits(url: str) -> tuple[Permits, dict[str, Live]]:
    """One reader a process, with the resources that it goes by."""
    now: dict[str, Live] = {}
    effective: Callable[[], Mapping[str, Live]] = lambda: now  # noqa: E731
    return Permits(url, effective), now
