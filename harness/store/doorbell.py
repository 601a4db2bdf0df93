"""Waking the dispatcher: one NOTIFY a process in 10 ms at most, after the commit, only while it says that it sleeps.

Inside a transaction, NOTIFY would make the commits of the whole cluster run one at a time (hotpath.md, section 6).
A ring that is left out loses nothing: the one before it woke the dispatcher, which then looks again for longer than
EVERY_S, and its tick (250 ms) covers the rest. So one that fails fails nobody: what was committed before it stands.
"""

import time

import psycopg
from psycopg_pool import ConnectionPool

from harness.policy.errors import Unavailable
from harness.store.database import Connection, borrowed
from harness.telemetry import logs

CHANNEL = "harness_doorbell"
EVERY_S = 0.010

log = logs.get(__name__)


class Doorbell:
    """The process's own bell."""

    def __init__(self) -> None:
        self._rung_s = 0.0

    def ring(self, connection: Connection) -> None:
        """Wake the dispatcher if it sleeps; `connection` is in autocommit, its work committed. Never fails."""
        now_s = time.monotonic()
        if now_s - self._rung_s < EVERY_S:
            return
        self._rung_s = now_s
        try:
            connection.execute("SELECT pg_notify('harness_doorbell', '') FROM leader WHERE id = 1 AND sleeping")
        except psycopg.Error as error:
            log.info("doorbell_failed", reason=str(error).strip())

    def ring_from(self, pool: ConnectionPool[Connection]) -> None:
        """The same over a connection of this pool. Never fails."""
        try:
            with borrowed(pool) as connection:
                self.ring(connection)
        except Unavailable as error:
            log.info("doorbell_failed", reason=error.message)
