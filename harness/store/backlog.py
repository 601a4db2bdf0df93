"""What the door needs beside the tasks: the size of a tenant's backlog, and the run's row.

The backlog is counted, never kept as a counter (decision 2). One process counts a tenant at most once in COUNT_EVERY_S
and adds what it has let in since. Bound: a quota is exceeded by at most what the *other* processes commit within
COUNT_EVERY_S plus the length of one transaction; one process alone never exceeds it.
"""

import threading
import uuid
from dataclasses import dataclass

from harness.store import sql
from harness.store.database import Connection

COUNT_EVERY_S = 1.0
TENANTS_KEPT = 4096  # entries older than COUNT_EVERY_S are worth nothing; beyond this many they are dropped


@dataclass(slots=True)
class _Seen:
    """`counted` at `at_s`; `added`: let in by this process, perhaps not in it; `open`: those not yet committed."""

    at_s: float | None = None
    counting: bool = False
    counted: int = 0
    added: int = 0
    open: int = 0
    ever: int = 0


class Backlog:
    """The unfinished tasks of tenants, as one process sees them. Safe to share between threads."""

    def __init__(self) -> None:
        self._seen: dict[int, _Seen] = {}
        self._lock = threading.Lock()

    def reserve(self, connection: Connection, tenant: int, n: int, *, quota: int, now_s: float) -> int:
        """Return how many tasks the tenant has there, without the `n` that are herewith reserved.

        `now_s` is monotonic. The caller ends each reservation with `committed` or `released`.
        """
        with self._lock:
            seen = self._seen.get(tenant)
            if seen is None:
                self._drop_old(now_s)
                seen = self._seen[tenant] = _Seen()
            known = seen.at_s is not None
            stale = seen.at_s is None or now_s - seen.at_s >= COUNT_EVERY_S
            if stale and not (known and seen.counting):
                seen.counting = True
                counts = True
                before, still_open = seen.ever, seen.open
            else:
                counts = False  # while one thread counts, the others go by the old figures
        try:
            counted = self._count(connection, tenant, quota) if counts else None
        finally:
            if counts:
                seen.counting = False
        with self._lock:
            if counted is not None:
                # What this process had open when the count began may have come too late for it: it stays added. Twice
                # counted for a second is the safe side.
                seen.at_s, seen.counted = now_s, counted
                seen.added = still_open + (seen.ever - before)
            there = seen.counted + seen.added
            seen.added += n
            seen.open += n
            seen.ever += n
            return there

    def committed(self, tenant: int, n: int) -> None:
        """The reserved tasks are there."""
        with self._lock:
            if tenant in self._seen:
                self._seen[tenant].open -= n

    def released(self, tenant: int, n: int) -> None:
        """The reserved tasks won't come."""
        with self._lock:
            if tenant in self._seen:
                seen = self._seen[tenant]
                seen.open -= n
                seen.added = max(0, seen.added - n)

    @staticmethod
    def _count(connection: Connection, tenant: int, quota: int) -> int:
        row = connection.execute(sql.load("submit/count_backlog"), {"tenant": tenant, "most": quota + 1}).fetchone()
        return int(row[0]) if row else 0

    def _drop_old(self, now_s: float) -> None:
        if len(self._seen) >= TENANTS_KEPT:
            for tenant in [t for t, s in self._seen.items() if not s.open and now_s - (s.at_s or 0) >= COUNT_EVERY_S]:
                del self._seen[tenant]


def insert_run(
    connection: Connection, *, public_id: uuid.UUID, tenant: int, name: str, size: int, fanout_cap: int | None
) -> int:
    """Insert a run in the caller's transaction. Returns its id."""
    row = connection.execute(
        sql.load("submit/insert_run"),
        {"public_id": public_id, "tenant": tenant, "name": name, "size": size, "fanout_cap": fanout_cap},
    ).fetchone()
    assert row is not None
    return int(row[0])
