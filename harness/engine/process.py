"""The state of one operating-system process that executes tasks: its session, fence, connections and running leases.

Shared by the threads of the process. The fence decides whether this process may still begin an effect: it is open
while less than FENCE_AFTER_S have passed on CLOCK_BOOTTIME (which runs on through a suspend) since the start of the
last beat that committed, and once closed it stays closed.
"""

import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg
from django.conf import settings
from psycopg_pool import ConnectionPool

from harness.engine.calls import Call, Hand, Hands, Stirred
from harness.engine.downstream import Downstream
from harness.engine.live import Live
from harness.engine.targets import Targets
from harness.engine.together import Together
from harness.engine.waits import Waits
from harness.policy.errors import Unavailable
from harness.store import steps, targets, transitions
from harness.store.database import LOCKED, Connection, Role, borrowed, open_pool
from harness.store.doorbell import Doorbell
from harness.store.sessions import FENCE_AFTER_S
from harness.store.steps import Beginning, Finishing
from harness.store.transitions import ClaimedTask, Ended
from harness.telemetry import logs

log = logs.get(__name__)
ENGINE: Role = "engine"
LANES = 1  # statements of a kind that one process has under way at once; with two, both are half as full
ALONE_WAIT = "100ms"  # for rows that somebody has locked: so long one settle keeps the others from their connection


class LeaseLost(BaseException):
    """This worker may no longer act for the task: another may be running it. Nothing is settled, nothing begins.

    A BaseException, so that a kind's `except Exception` can't go on acting.
    """


def boottime_s() -> float:
    """Seconds on a clock that no one sets and that counts while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


DRAIN = "drain"


class Fence:
    """Open while the session is surely alive. `beat_s()`: when the last beat that committed was begun."""

    def __init__(self, beat_s: Callable[[], float]) -> None:
        # Asked at each look, never copied by a thread of this process: a kind may keep the interpreter to itself.
        self._beat_s = beat_s
        self._closed = False

    def close(self) -> None:
        """Let no effect begin from here on."""
        self._closed = True

    def is_open(self, now_s: float | None = None) -> bool:
        """Whether effects may begin."""
        now_s = boottime_s() if now_s is None else now_s
        if now_s - self._beat_s() > FENCE_AFTER_S:
            self._closed = True
        return not self._closed

    def check(self, now_s: float | None = None) -> None:
        """Raises: LeaseLost when no effect may begin."""
        if not self.is_open(now_s):
            raise LeaseLost("this worker's session can no longer be trusted to be alive")


@dataclass(slots=True)
class Running:
    """A lease that a thread here works on. `stop`: why the task should end early; the first reason stays."""

    lease: int
    token: int
    tasks: dict[int, int]  # the members not settled yet: task id -> release_no
    kind: str
    timeout_s: float
    task: int = 0  # the member that runs now
    attempts_used: int = 0
    max_attempts: int = 1
    task_began_s: float = field(default_factory=time.monotonic)
    stop: str | None = None
    taken_over: bool = False  # the watcher settled it; the thread's own outcome no longer counts
    taken_over_s: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)
    tokens: int = 0  # that the member running now has used so far, and what they cost (None: one had no price)
    usd: float | None = 0.0
    watched: set[str] = field(default_factory=set)  # public ids of the members that have shown output
    calls: set[Stirred] = field(default_factory=set)  # under way: calls (one inside another, too), uses of a target
    hand: Hand | None = None  # the thread that made the last call, for the next one
    left: set[Call] = field(default_factory=set)  # calls that go on though the task has left them; under `lock`
    kept: bool = False  # its lease was left as a zombie, for such a call
    thread_over: bool = False  # the task's own thread has done with it; under `lock`

    def ask_to_stop(self, why: str) -> None:
        """Let the task see, at its next look, that it should end: cancel, pause, drain or timeout.

        A drain lets the call under way end; what else stops the task doesn't wait for it, and goes before a drain.
        """
        if self.stop is None or (self.stop == DRAIN and why != DRAIN):
            self.stop = why
            for call in list(self.calls):
                call.stir()

    def stop_no_more(self, why: str) -> None:
        """Take back that it should end, if that is why and it hasn't ended yet."""
        if self.stop == why:
            self.stop = None


class ProcessState:
    """What the threads of one executing process share."""

    def __init__(
        self,
        *,
        session: uuid.UUID,
        db: "ConnectionPool[Connection]",
        actor: str,
        pid: int,
        fence: Fence,
        time_limit_error: type[BaseException] | None = None,
    ) -> None:
        self.session = session
        self.db = db
        self.actor = actor
        self.pid = pid
        self.time_limit_error = time_limit_error
        self.fence = fence
        self.running: dict[int, Running] = {}
        self.draining = False
        self.doorbell = Doorbell()
        self.hands = Hands()
        self.waits = Waits()
        self.downstream = Downstream(settings.HARNESS_PERMITS_URL, settings.HARNESS_TOPOLOGY.resources, self.waits)
        self.targets = Targets(self._mark, self.waits)
        self.live = Live(settings.HARNESS_LIVE_URL, may_send=fence.is_open)
        self.claims: Together[tuple[int, int], list[ClaimedTask]] = Together(self._claim, lanes=LANES)
        self.settles: Together[Ended, psycopg.Error | None] = Together(self._settle, lanes=LANES)
        self._begins: Together[Beginning, bool | None] = Together(self._begin, lanes=LANES)
        self._finishes: Together[Finishing, bool | None] = Together(self._finish, lanes=LANES)

    def counted(self) -> dict[str, dict[str, list[float]]]:
        """Return what this process has counted since it began, for the metrics."""
        return self.waits.counts.read() | self.downstream.counted()

    def _mark(self) -> str:
        with borrowed(self.db) as connection:
            return targets.mark(connection)

    def drain(self) -> None:
        """Take no new lease, and ask what runs to end at its next checkpoint."""
        self.draining = True
        for running in list(self.running.values()):
            running.ask_to_stop(DRAIN)

    def call_over(self, running: Running, call: Call) -> None:
        """Note that a call which was left has returned; the last one frees the slot if the task's thread has gone."""
        with running.lock:
            running.left.discard(call)
            gone = running.thread_over and not running.left
        if gone:
            self.free(running)

    def free(self, running: Running) -> None:
        """Forget a lease on which nothing runs any more; one that stayed as a zombie goes."""
        if running.taken_over or running.kept:
            try:
                with borrowed(self.db) as connection:
                    transitions.settle(
                        connection, [], lease=running.lease, token=running.token, session=self.session, actor=self.actor
                    )
                    self.doorbell.ring(connection)
            except (Unavailable, psycopg.Error) as error:
                log.warning("zombie_not_dropped", lease=running.lease, error=str(error))
        self.running.pop(running.lease, None)

    def _claim(self, leases: Sequence[tuple[int, int]]) -> list[list[ClaimedTask]]:
        """Claim (lease, token) pairs over one connection. Raises: LeaseLost, Unavailable, psycopg.Error."""
        if len({lease for lease, _ in leases}) < len(leases):
            # A lease twice in one company: its message was doubled. One after the other, so that one alone gets it.
            return [self._claim([pair])[0] for pair in leases]
        self.fence.check()
        with borrowed(self.db) as connection:
            taken = transitions.claim_many(connection, leases, session=self.session, pid=self.pid, actor=self.actor)
        return [taken.get(lease, []) for lease, _ in leases]

    def _settle(self, ended: Sequence[Ended]) -> list[psycopg.Error | None]:
        """Settle over one connection. Returns for each what the database refused in it, if anything.

        Raises: LeaseLost, Unavailable.
        """
        self.fence.check()
        try:
            with borrowed(self.db) as connection, suppress(psycopg.errors.LockNotAvailable):
                _, sleeping = transitions.settle_many(connection, ended, session=self.session, actor=self.actor)
                if sleeping:
                    self.doorbell.ring(connection)
                return [None] * len(ended)
            # Somebody keeps a row of one of them, for as long as a lock is waited for: the others need not wait again.
            return [self.settle_alone(one) for one in ended]
        except psycopg.Error as error:
            if len(ended) == 1:
                return [error]
            # One outcome that can't be stored must not hold up its company. The connection has been given back: there
            # may be no other.
            return [self._settle([one])[0] for one in ended]

    def settle_alone(self, ended: Ended) -> psycopg.Error | None:
        """Settle beside the company, with little patience for a lock. Returns as `_settle`; LockNotAvailable: not yet.

        Raises: LeaseLost, Unavailable.
        """
        self.fence.check()
        try:
            with borrowed(self.db) as connection, suppress(psycopg.errors.LockNotAvailable):
                with connection.transaction():
                    connection.execute(f"SET LOCAL lock_timeout = '{ALONE_WAIT}'")
                    _, sleeping = transitions.settle_many(connection, [ended], session=self.session, actor=self.actor)
                if sleeping:
                    self.doorbell.ring(connection)
                return None
        except psycopg.Error as error:
            return error
        return psycopg.errors.LockNotAvailable(LOCKED)

    def begin_step(self, one: Beginning, *, alone: bool = False) -> bool | None:
        """Begin a step. False: its task was taken back; None: somebody has locked it, so come again, `alone`.

        Raises: LeaseLost, Unavailable, psycopg.Error.
        """
        return self._write_alone(steps.begin, one) if alone or self._is_alone else self._begins.run(one)

    def finish_step(self, one: Finishing, *, alone: bool = False) -> bool | None:
        """Record that a step has finished. Returns and raises as `begin_step`."""
        return self._write_alone(steps.finish, one) if alone or self._is_alone else self._finishes.run(one)

    @property
    def _is_alone(self) -> bool:
        # Where a time limit is raised into the thread, anywhere, nobody else may depend on what it had begun.
        return self.time_limit_error is not None

    def _begin(self, some: Sequence[Beginning]) -> list[bool | None]:
        return self._write_together(steps.begin, some)

    def _finish(self, some: Sequence[Finishing]) -> list[bool | None]:
        return self._write_together(steps.finish, some)

    def _write_together(self, write: Callable[..., list[bool]], some: Sequence[Any]) -> list[bool | None]:
        """Write steps over one connection. Raises: LeaseLost, Unavailable, psycopg.Error."""
        self.fence.check()
        with borrowed(self.db) as connection, suppress(psycopg.errors.LockNotAvailable):
            return [*write(connection, some, actor=self.actor)]
        # As for settles: somebody keeps the row of one of them, and the others need not wait for it again.
        return [self._write_alone(write, one) for one in some]

    def _write_alone(self, write: Callable[..., list[bool]], one: Any) -> bool | None:
        """Write a step beside the company, with little patience for a lock. Raises: as `_write_together`."""
        self.fence.check()
        with borrowed(self.db) as connection, suppress(psycopg.errors.LockNotAvailable):
            if self._is_alone:  # nobody waits for this connection
                return write(connection, [one], actor=self.actor)[0]
            with connection.transaction():
                connection.execute(f"SET LOCAL lock_timeout = '{ALONE_WAIT}'")
                return write(connection, [one], actor=self.actor)[0]
        return None


def open_process(
    *,
    database_url: str,
    session: uuid.UUID,
    pools: Mapping[str, int],
    connections: int,
    application_name: str,
    pid: int,
    beat_s: Callable[[], float],
    time_limit_error: type[BaseException] | None = None,
) -> ProcessState:
    """Open the state of an executing process with a bounded pool of `connections` to the database.

    `beat_s()`: when the last beat of the session that committed was begun, on CLOCK_BOOTTIME; the fence counts from
    there, so that a child born late doesn't trust the session for longer than its parent does.
    """
    db = open_pool(database_url, ENGINE, size=connections, application_name=application_name)
    return ProcessState(
        session=session,
        db=db,
        actor=f"worker {'+'.join(pools)}",
        pid=pid,
        fence=Fence(beat_s),
        time_limit_error=time_limit_error,
    )
