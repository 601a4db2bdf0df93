"""The leader's side of admission: once a second it keeps what doors go by, and lets in of the deferred who fits.

load (one bounded look) -> decide (policy.prospect) -> commit (the row; then the tasks). It goes beside the sweep, on
that thread and connection. Where a look takes long the next one waits longer: it takes a twentieth of the time at most.
While nobody leads nothing is kept, and doors know no waits: they refuse nothing for them.
"""

import time
from collections.abc import Sequence

import psycopg

from harness.policy import prospect
from harness.policy.prospect import Let
from harness.policy.settings import Topology
from harness.store import door, transitions
from harness.store.database import Connection
from harness.telemetry import logs

EVERY_S = 1.0
SHARE = 20.0  # a look that took a second is followed by the next one 20 s later
LOOK_MOST_S = 2.0
LET_MOST = 2_000  # tasks in one statement; what is left comes a second later
ACTOR = "admission"
REASON = "its predicted wait is within the target"

log = logs.get(__name__)


class Doorkeeper:
    """One a leader. Not safe for threads: one calls `round`."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._next_s = 0.0

    def round(self, connection: Connection, *, epoch: int) -> int:
        """Look, keep, let in, if it is time. Returns how many tasks were let in. Raises: psycopg.Error (connection)."""
        began_s = time.monotonic()
        if began_s < self._next_s:
            return 0
        self._next_s = began_s + EVERY_S
        try:
            let = self._round(connection, epoch)
        except psycopg.OperationalError as error:  # a time limit, a lock, the server; never a mistake of ours
            if connection.closed:
                raise
            log.warning("door_unseen", error=str(error).strip())
            let = 0
        self._next_s = max(self._next_s, began_s + SHARE * (time.monotonic() - began_s))
        return let

    def _round(self, connection: Connection, epoch: int) -> int:
        # 1. Load
        with connection.transaction():
            connection.execute(f"SET LOCAL statement_timeout = {round(1000 * LOOK_MOST_S)}")
            seen = door.look(connection, self._topology.resources)
        # 2. Decide
        places = prospect.places(seen.facts)
        let = prospect.let_in(seen.facts, places) if seen.facts.deferred else []
        # 3. Commit
        door.keep(connection, seen, places, epoch=epoch)
        done = transitions.let_in(connection, _bounded(let), actor=ACTOR, reason=REASON) if let else 0
        if done:
            log.info("deferred_let_in", tasks=done)
        return done


def _bounded(let: Sequence[Let]) -> list[Let]:
    """Leave out what is too much for one statement; every group keeps its part."""
    total = sum(one.tasks for one in let)
    if total <= LET_MOST:
        return list(let)
    return [
        Let(one.pool, one.priority, one.signature, one.tenant, max(1, one.tasks * LET_MOST // total)) for one in let
    ]
