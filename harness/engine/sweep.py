"""The stage beside the line: what time does to tasks. A thread of the leading dispatcher, with its own connection.

Level-triggered: each round looks at what is so, not at what changed, so a missed round or a crash loses nothing.
A step that fails, or finds rows that somebody has locked, keeps no other step waiting and no other row; nothing here
locks the leader's row, so a round that is stuck keeps nobody from releasing.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import psycopg
from django.conf import settings

from harness.engine import artifacts, ends, living, schedules
from harness.engine.schedules import Firing
from harness.engine.watch import max_attempts
from harness.store import door, housekeeping, money, pauses, sessions, transitions
from harness.store.database import Connection
from harness.telemetry import logs

EVERY_S = 1.0
UNCLAIMED_S = 10.0  # a released lease that no worker claimed in this time goes back in line
EVENT_DAYS_AHEAD = 14
LOCK_WAIT_S = 0.5  # for a lock that can't be passed over; the next round comes in a second
LEASES_AT_ONCE = 200
TASKS_AT_ONCE = 500
ACTOR = "sweep"

AttemptsEnded = Callable[[Iterable[tuple[int, int]]], None]  # by task and release_no

log = logs.get(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Swept:
    """How many tasks a round touched, by what happened."""

    lost: int
    unclaimed: int
    due: int
    expired: int
    unanswered: int
    resumed: int
    scheduled: int
    carried: int

    @property
    def woke(self) -> bool:
        """Whether something may be ready now that wasn't."""
        return bool(self.lost or self.unclaimed or self.due or self.resumed or self.scheduled)

    @property
    def more(self) -> bool:
        """Whether a step did as much as it may at once, so that the next round should not wait."""
        most = max(self.unclaimed, self.due, self.expired, self.unanswered, self.resumed)
        return self.lost >= LEASES_AT_ONCE or most >= TASKS_AT_ONCE or self.carried >= ends.MOST


def sweep(connection: Connection, *, epoch: int, firing: Firing, ended: AttemptsEnded | None = None) -> Swept:
    """Do one round: dead sessions, unclaimed leases, what is due, expired or unanswered, returned versions, schedules,
    what ended tasks leave behind, money spent.

    `ended` is told of the attempts whose worker is gone, at once: the permits of their calls are free.

    Raises: psycopg.Error when the connection is gone.
    """

    def step(name: str, work: Callable[[], int]) -> int:
        try:
            return work()
        except psycopg.OperationalError as error:  # a lock, a time limit, the server; never a mistake of ours
            if connection.closed:
                raise
            log.warning("sweep_step_failed", step=name, error=str(error).strip())
            return 0

    step("end_dead", lambda: _end_dead(connection))
    swept = Swept(
        lost=step("lose", lambda: _lose(connection, ended)),
        unclaimed=step(
            "hand_back_unclaimed",
            lambda: transitions.hand_back_unclaimed(connection, older_than_s=UNCLAIMED_S, limit=TASKS_AT_ONCE),
        ),
        due=step("wake_due", lambda: transitions.wake_due(connection, actor=ACTOR, limit=TASKS_AT_ONCE)),
        expired=step("expire_due", lambda: transitions.expire_due(connection, actor=ACTOR, limit=TASKS_AT_ONCE)),
        unanswered=step("time_out", lambda: transitions.time_out(connection, actor=ACTOR, limit=TASKS_AT_ONCE)),
        resumed=step(
            "resume_version", lambda: transitions.resume_version(connection, actor=ACTOR, limit=TASKS_AT_ONCE)
        ),
        scheduled=step("fire_due", lambda: schedules.fire_due(firing, connection)),
        carried=step("carry_ends", lambda: ends.carry(connection, actor=ACTOR)),
    )
    unpriced_usd = settings.HARNESS_MODELS.unpriced_usd
    step("count_spent", lambda: money.count(connection, epoch=epoch, unpriced_usd=unpriced_usd))
    return swept


def _end_dead(connection: Connection) -> int:
    dead = sessions.end_dead(connection)
    if (here := living.place()) is not None:
        dead += sessions.end_gone(connection, here, living.is_gone)
    for session, host in dead:
        log.warning("session_dead", session=str(session), host=host)
    return len(dead)


def _lose(connection: Connection, ended: AttemptsEnded | None) -> int:
    lost = transitions.lose(
        connection, max_attempts=max_attempts(), retry_delay_s=1.0, actor=ACTOR, limit=LEASES_AT_ONCE
    )
    for one in lost:
        log.warning("task_lost", task=one.task, event_fired=one.event, state=one.state)
    if ended is not None and lost:
        ended([(one.task, one.release_no) for one in lost])
    return len(lost)


def tidy(connection: Connection) -> None:
    """Make event partitions ahead; forget keys, sessions, pauses, refusals and artifacts that are long over.

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
    door.forget(connection)
    artifacts.tidy(connection)
