"""A worker process that is to go, when what it runs has ended: somebody else has told its session to drain.

It takes nothing new (its queues are let go of, as when they are paused; the dispatcher counts its slots no more), and
nothing of what it runs is touched, however long that takes. Then it ends as on a SIGTERM. It never goes back to work:
who wants it again starts another one.
"""

import time
import uuid

from harness.store import sessions
from harness.store.database import Connection
from harness.telemetry import logs

EMPTY_S = 4.0  # until the queues are let go of, and a last message has become a claim

log = logs.get(__name__)


class Retiring:
    """Whether a session was told to drain, and whether it may go."""

    def __init__(self, session: uuid.UUID) -> None:
        self._session = session
        self._since_s: float | None = None

    @property
    def begun(self) -> bool:
        """Whether it was told."""
        return self._since_s is not None

    def look(self, connection: Connection) -> bool:
        """Look once a second. True: it was told, and nothing runs here any more."""
        held = sessions.retired(connection, self._session)
        if held is None:
            return False
        if self._since_s is None:
            self._since_s = time.monotonic()
            log.info("worker_retires", session=str(self._session), held=held)
        return held == 0 and time.monotonic() - self._since_s >= EMPTY_S
