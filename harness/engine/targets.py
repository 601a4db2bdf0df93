"""The connections of running tasks to target databases: each under the right that its task's lease gives it.

A task that declares `{"db:main": n}` may have n of them at once, from its first use until it ends. They are opened when
they are needed and closed before the lease is settled, so that all processes together never have more open than there
are leases, however many processes run and wherever the leases go: no share of the pool belongs to a process, and none
lies idle in one while another waits. The price is the time to connect, which counts as the wait for a connection.

The one process that alone gets a target's work (policy.homes) pays it once: it keeps what its tasks have opened for the
next ones, up to the limit. It does so only for as long as it was told; then those that lie idle are closed.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

import psycopg
from psycopg import errors

from harness.engine.counts import DB
from harness.engine.waits import Waits
from harness.kinds import models, targets
from harness.kinds.errors import Permanent, RateLimited, TimedOut, Transient, WorkError
from harness.policy.errors import ErrorClass
from harness.store import targets as store_targets
from harness.store.targets import Target
from harness.telemetry import logs

PATIENCE_S = 2.0  # with a target that is full: its limit follows within that, or the task does better to wait outside
FULL_AGAIN_S = 1.0  # before the task is released again; the limit has been measured anew by then
AWAY_AGAIN_S = 5.0
PAUSE_S = (0.003, 0.1)  # between two tries to enter, growing
IDLE_MOST_S = 10.0  # before the server does it: a connection that nobody needed for so long is closed
CANCEL_AGAIN_S = 0.3
CANCEL_S = 2  # a request to cancel a statement that isn't answered by then is given up

log = logs.get(__name__)


class Targets:
    """What the tasks of one process share: who we are, there, and how long was waited."""

    def __init__(self, mark: Callable[[], str], waits: Waits) -> None:
        self._mark = mark
        self._known_mark: str | None = None
        self._lock = threading.Lock()
        self._waits = waits
        self._open: Counter[str] = Counter()
        self._idle: dict[str, list[tuple[Target, float]]] = {}
        self._keeps: Mapping[str, int] = {}
        self._keeps_until_s = 0.0

    @property
    def open(self) -> int:
        """Connections of this process."""
        return self._open.total()

    def keep(self, keeps: Mapping[str, int], *, until_s: float) -> None:
        """Keep so many connections of each target between tasks, until then (CLOCK_MONOTONIC); close what is beyond."""
        with self._lock:
            self._keeps, self._keeps_until_s = keeps, until_s
        self.tidy()

    def tidy(self) -> None:
        """Close the connections that lie idle beyond what may be kept, or for long. To be asked once a second."""
        since_s = time.monotonic() - IDLE_MOST_S
        beyond = []
        with self._lock:
            for name, some in self._idle.items():
                while some and (some[0][1] < since_s or not self._may_keep(name)):
                    beyond.append((name, some.pop(0)[0]))
                    self._open[name] -= 1
        for _, connection in beyond:
            _close(connection)

    def take(self, name: str, *, statement_s: float, look: Callable[[], None]) -> Target:
        """Return a connection that was kept, or open one. Raises: as `connect`."""
        while True:
            with self._lock:
                some = self._idle.get(name)
                kept = some.pop()[0] if some else None
            if kept is None:
                return self.connect(name, statement_s=statement_s, look=look)
            with suppress(psycopg.Error):
                store_targets.begin_use(kept, statement_s=statement_s)
                return kept
            self.close(name, kept)  # its server has closed it

    def give_back(self, name: str, connection: Target) -> None:
        """Keep a connection whose task has ended, if it may be kept; else close it."""
        with self._lock:
            keep = self._may_keep(name)
        if keep and store_targets.forget(connection):
            with self._lock:
                if self._may_keep(name):
                    self._idle.setdefault(name, []).append((connection, time.monotonic()))
                    return
        self.close(name, connection)

    def _may_keep(self, name: str) -> bool:
        return time.monotonic() < self._keeps_until_s and self._open[name] <= self._keeps.get(name, 0)

    def connect(self, name: str, *, statement_s: float, look: Callable[[], None]) -> Target:
        """Open a connection. `look()` is asked between tries and raises when the task is to end.

        Raises: RateLimited (back in line, no attempt spent) when the target is full, away, or has no address here.
        """
        try:
            address = targets.address(targets.configured()[name])
        except targets.NoAddress as error:
            raise RateLimited(f"{name}: {error}", retry_after_s=AWAY_AGAIN_S) from None
        until_s = time.monotonic() + PATIENCE_S
        pause_s = PAUSE_S[0]
        while True:
            look()
            try:
                connection = store_targets.open_target(
                    address.conninfo,
                    application_name=store_targets.task_name(self._own(), name),
                    statement_s=statement_s,
                )
            except psycopg.OperationalError as error:
                if not store_targets.is_full(error):
                    # Where it is, is the operators' business: a task's error is its tenant's to read.
                    log.warning("target_unreachable", target=name, why=_said(error))
                    raise RateLimited(f"{name} can't be reached", retry_after_s=AWAY_AGAIN_S) from None
                if time.monotonic() + pause_s > until_s:
                    raise RateLimited(f"{name} takes no more connections", retry_after_s=FULL_AGAIN_S) from None
            else:
                with self._lock:
                    self._open[name] += 1
                return connection
            time.sleep(pause_s * random.uniform(0.5, 1.5))
            pause_s = min(2 * pause_s, PAUSE_S[1])

    def close(self, name: str, connection: Target) -> None:
        """Close a connection, whatever state it is in."""
        _close(connection)
        with self._lock:
            self._open[name] -= 1

    def waited(self, name: str, seconds: float) -> None:
        """Note how long a task waited for a connection."""
        self._waits.note(name, seconds, what=DB)

    def _own(self) -> str:
        if self._known_mark is None:
            self._known_mark = self._mark()
        return self._known_mark


class Held:
    """The connections of one task; the kind's own threads may share them. `rights`: how many of each it may have."""

    def __init__(
        self, shared: Targets, rights: Mapping[str, int], *, statement_s: float, look: Callable[[], None]
    ) -> None:
        self._shared = shared
        self._rights = rights
        self._statement_s = statement_s
        self._look = look
        self._lock = threading.Lock()
        self._free: dict[str, list[Target]] = {}
        self._gates: dict[str, threading.Semaphore] = {}
        self._over = False

    @contextmanager
    def borrowed(self, name: str) -> Iterator[Target]:
        """Borrow one of the task's connections; open it if need be. Raises: as Targets.connect; what `look` raises."""
        began_s = time.monotonic()
        with self._lock:
            gate = self._gates.setdefault(name, threading.Semaphore(self._rights[name]))
        while not gate.acquire(timeout=0.25):
            self._look()
        try:
            try:
                connection = self._take(name)
            finally:
                self._shared.waited(name, time.monotonic() - began_s)  # in vain, too
            try:
                yield connection
            finally:
                self._put(name, connection)
        finally:
            gate.release()

    def close(self) -> None:
        """Give them up: the task has ended, and its right ends with it."""
        with self._lock:
            self._over = True
            left = [(name, one) for name, some in self._free.items() for one in some]
            self._free.clear()
        for name, connection in left:
            self._shared.give_back(name, connection)

    def _take(self, name: str) -> Target:
        with self._lock:
            free = self._free.get(name)
            if free:
                return free.pop()
        return self._shared.take(name, statement_s=self._statement_s, look=self._look)

    def _put(self, name: str, connection: Target) -> None:
        with self._lock:
            keep = not self._over and not connection.closed and not connection.broken
            if keep:
                self._free.setdefault(name, []).append(connection)
        if not keep:
            self._shared.close(name, connection)


class Use:
    """A use of a connection under way: a wish to end the task cancels the statement that runs on it."""

    __slots__ = ("_asked", "_connection", "_ending", "_over")

    def __init__(self, connection: Target, ending: Callable[[], bool]) -> None:
        self._connection = connection
        self._ending = ending
        self._asked = False
        self._over = threading.Event()

    def stir(self) -> None:
        """Cancel the statement if the task is to end. Returns at once: the request goes out on a thread of its own."""
        if self._ending() and not self._asked:
            self._asked = True
            threading.Thread(target=self._cancel, name="cancel", daemon=True).start()

    def end(self) -> None:
        """The use is over: nothing is cancelled any more."""
        self._over.set()

    def _cancel(self) -> None:
        # Again and again: one that comes between two statements cancels neither.
        while not self._over.is_set():
            with suppress(psycopg.Error):
                self._connection.cancel_safe(timeout=CANCEL_S)
            self._over.wait(CANCEL_AGAIN_S)


@contextmanager
def told(name: str) -> Iterator[None]:
    """Turn what psycopg raises inside into the errors of work. `name`: the target, for the message."""
    try:
        yield
    except psycopg.Error as error:
        raise _classed(name, error) from error


def _classed(name: str, error: psycopg.Error) -> WorkError:
    text = f"{name}: {type(error).__name__}: {_said(error)}"
    match error:
        case errors.QueryCanceled():
            return TimedOut(text)
        case errors.InsufficientPrivilege():
            return Permanent(text, error_class=ErrorClass.PERMISSION)
        case errors.SerializationFailure() | errors.DeadlockDetected() | errors.LockNotAvailable():
            return Transient(text)
        case psycopg.OperationalError() | psycopg.InterfaceError():
            broken = Transient(text)
            broken.error_class = ErrorClass.NETWORK
            return broken
        case psycopg.ProgrammingError() | psycopg.DataError() | psycopg.IntegrityError() | psycopg.NotSupportedError():
            return Permanent(text)
        case _:
            return Transient(text)


def _close(connection: Target) -> None:
    with suppress(psycopg.Error):
        connection.close()


def _said(error: Exception) -> str:
    return models.redact(" ".join(str(error).split()))[:500]
