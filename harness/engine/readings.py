"""What the leader reads of resources, on a thread and a connection of its own: permits 4 times a second, rows once.

A tick takes the last outlook and waits for nothing. While Redis can't be read the last readings hold for a moment, then
half of what is proven (rule C5 of policy.calls); while the database can't, the last rows do. That `observe` hasn't run
for LATE_S is told here: what it keeps is what all begin with after Redis was emptied, and it gets old.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import psycopg

from harness.policy import outlook
from harness.policy.calls import Assumed, Reading
from harness.policy.outlook import Outlook
from harness.policy.resources import Live, Resource
from harness.store import resources
from harness.store.database import Connection
from harness.store.resources import ResourceNow
from harness.telemetry import logs

EVERY_S = 0.25
ROWS_EVERY_S = 1.0
BLIND_AFTER_S = 1.0  # Redis can be away for so long: a restart of it takes that, and permits wait for it meanwhile
LATE_S = 30.0  # six times what `observe` should take to come again
RECONNECT_S = 1.0

log = logs.get(__name__)


class Reads(Protocol):
    """Who reads permits, and frees those of attempts whose worker is gone (store.permits)."""

    def read(self, names: Iterable[str]) -> Mapping[str, Reading] | None:
        """Return how resources stand. None: Redis is away."""
        ...

    def ended(self, attempts: Iterable[tuple[int, int]]) -> None:
        """Free what attempts (task, release_no) held."""
        ...


@dataclass(slots=True)
class Readings:
    """What was read last. `permits` None: nobody gives any, so nothing is read, and limits are as configured.

    Moments are of the monotonic clock; `began_s`: since when this process leads.
    """

    configured: Mapping[str, Resource]
    permits: Reads | None = None
    live: Mapping[str, Live] = field(default_factory=dict)
    began_s: float = field(default_factory=time.monotonic)
    late: bool = False  # `observe`, and that was told
    _last: dict[str, Reading] = field(default_factory=dict)
    _last_s: float | None = None  # when it was read
    _rows_s: float | None = None
    _epoch_s: float = 0.0  # the database's time then
    _blind: bool = False

    def effective(self) -> Mapping[str, Live]:
        """Return the resources as they are now: the same values while nothing has changed."""
        return self.live

    def look(self, connection: Connection | None) -> Outlook:
        """Return what is so now. `connection` None: the database is away. Raises: psycopg.Error."""
        now_s = time.monotonic()
        if not self.live:
            self.live = {name: Live(resource=one) for name, one in self.configured.items()}
        if connection is not None and (self._rows_s is None or now_s - self._rows_s >= ROWS_EVERY_S):
            self._read_rows(connection, now_s)
        found = None
        if self.permits is not None:
            found = self.permits.read([name for name, one in self.live.items() if one.resource.held == "call"])
        now_s = time.monotonic()
        if found:
            self._last.update(found)
            self._last_s = now_s
        blind = (
            self.permits is not None
            and found is None
            and (self._last_s is None or now_s - self._last_s > BLIND_AFTER_S)
        )
        self._tell_blind(blind)
        return outlook.of(self.live, self._last, at_s=self._at_s(now_s), taken_s=now_s, blind=blind)

    def _at_s(self, now_s: float) -> float:
        """Now by Redis's clock, as far as it is known; else by the database's."""
        if self._last_s is not None:
            return max(one.at_s for one in self._last.values()) + now_s - self._last_s
        return self._epoch_s + (0.0 if self._rows_s is None else now_s - self._rows_s)

    def _read_rows(self, connection: Connection, now_s: float) -> None:
        live = resources.effective(connection, self.configured)
        # The same object while it is equal: permits know their configuration by it.
        self.live = {name: old if (old := self.live.get(name)) == one else one for name, one in live.items()}
        kept = resources.kept(connection)
        if self.permits is not None and not self._last:
            self._last.update(as_kept(self.live, kept))
        row = connection.execute("SELECT extract(epoch FROM clock_timestamp())::double precision").fetchone()
        assert row is not None
        self._rows_s, self._epoch_s = now_s, row[0]
        self._tell_late(kept, row[0], now_s)

    def _tell_late(self, kept: Mapping[str, ResourceNow], epoch_s: float, now_s: float) -> None:
        """Say that `observe` doesn't come, once, and that it came."""
        if self.permits is None:
            return
        calls = [name for name, one in self.live.items() if one.resource.held == "call"]
        seen = [one.seen_s for name in calls if (one := kept.get(name)) is not None and one.seen_s is not None]
        age_s = min(now_s - self.began_s, epoch_s - max(seen)) if seen else now_s - self.began_s
        late = bool(calls) and age_s > LATE_S
        if late and not self.late:
            log.warning("observe_late", for_s=round(age_s), hint="is beat running, and a worker of the pool system?")
        elif self.late and not late:
            log.info("observe_back")
        self.late = late

    def _tell_blind(self, blind: bool) -> None:
        if blind and not self._blind:
            log.warning("permits_unread", hint="Redis can't be read: half of the proven limits are released towards")
        elif self._blind and not blind:
            log.info("permits_read_again")
        self._blind = blind


def run(
    readings: Readings,
    connect: Callable[[], Connection],
    told: Callable[[Outlook], None],
    *,
    over: threading.Event,
) -> None:
    """Look until `over` is set; a connection that breaks is opened anew, and meanwhile only Redis is read."""
    while not over.is_set():
        try:
            with connect() as connection:
                while not over.wait(EVERY_S):
                    told(readings.look(connection))
        except psycopg.Error as error:
            log.warning("readings_failed", error=str(error).strip())
            end_s = time.monotonic() + RECONNECT_S
            while time.monotonic() < end_s and not over.wait(EVERY_S):
                told(readings.look(None))


def as_kept(live: Mapping[str, Live], kept: Mapping[str, ResourceNow]) -> dict[str, Reading]:
    """Return what was kept as readings: what is known of resources when nothing was ever read."""
    found: dict[str, Reading] = {}
    for name, one in kept.items():
        if name in live and live[name].resource.held == "call" and one.seen_s is not None:
            found[name] = Assumed(
                at_s=one.seen_s,
                limit=one.limit_now,
                proven=one.proven,
                ceiling=live[name].resource.capacity,
                mode=one.mode,
                blocked_until_s=one.blocked_until_s or 0.0,
                breaker=one.breaker or "closed",
                breaker_until_s=one.breaker_until_s or 0.0,
            )
    return found
