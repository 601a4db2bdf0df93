"""The stage beside the line: what time does to tasks. A thread of the leading dispatcher, with its own connection.

Level-triggered: each round looks at what is so, not at what changed, so a missed round or a crash loses nothing.
"""

from dataclasses import dataclass

import psycopg
from django.conf import settings

from harness.engine import artifacts, schedules
from harness.engine.schedules import Firing
from harness.engine.watch import max_attempts
from harness.store import housekeeping, money, pauses, sessions, snapshot, transitions
from harness.store.database import Connection
from harness.telemetry import logs

EVERY_S = 1.0
UNCLAIMED_S = 10.0  # a released lease that no worker claimed in this time goes back in line
ESTIMATE_WEIGHT = 0.1  # of one task in the moving mean of its kind's run time
EVENT_DAYS_AHEAD = 14
ACTOR = "sweep"

log = logs.get(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Swept:
    """How many tasks a round touched, by what happened."""

    lost: int
    unclaimed: int
    due: int
    expired: int
    resumed: int
    scheduled: int

    @property
    def woke(self) -> bool:
        """Whether something may be ready now that wasn't."""
        return bool(self.lost or self.unclaimed or self.due or self.resumed or self.scheduled)


def sweep(connection: Connection, *, epoch: int, firing: Firing) -> Swept:
    """Do one round: dead sessions, unclaimed leases, due and expired tasks, returned versions, schedules, charges."""
    for session, host in sessions.end_dead(connection):
        log.warning("session_dead", session=str(session), host=host)
    lost = transitions.lose(connection, max_attempts=max_attempts(), retry_delay_s=1.0, actor=ACTOR)
    for task, state, event in lost:
        log.warning("task_lost", task=task, event_fired=event, state=state)
    swept = Swept(
        lost=len(lost),
        unclaimed=transitions.hand_back_unclaimed(connection, older_than_s=UNCLAIMED_S),
        due=transitions.wake_due(connection, actor=ACTOR),
        expired=transitions.expire_due(connection, actor=ACTOR),
        resumed=transitions.resume_version(connection, actor=ACTOR),
        scheduled=schedules.fire_due(firing, connection),
    )
    money.count(connection, epoch=epoch, unpriced_usd=settings.HARNESS_MODELS.unpriced_usd)
    snapshot.fold_charges(connection, epoch=epoch, weight=ESTIMATE_WEIGHT)
    return swept


def tidy(connection: Connection) -> None:
    """Make event partitions ahead; forget keys, sessions and pauses that are long over, and artifacts that expired.

    Any number may run it.
    """
    try:
        with connection.transaction():
            # A new day needs the trace to itself: who waits for that holds up all that write to it.
            connection.execute(f"SET LOCAL lock_timeout = '{housekeeping.LOCK_TIMEOUT_BESIDE}'")
            connection.execute("SELECT harness_make_event_days(%s)", (EVENT_DAYS_AHEAD,))
    except psycopg.errors.LockNotAvailable:
        log.info("event_days_later", days_ahead=EVENT_DAYS_AHEAD)
    for _ in housekeeping.delete_expired_keys(connection):
        pass
    connection.execute("DELETE FROM worker_session WHERE ended_at < clock_timestamp() - interval '1 day'")
    pauses.forget(connection)
    artifacts.tidy(connection)
