"""The connections of running tasks to target databases: each under the right that its task's lease gives it.

A task that declares `{"db:main": n}` may have n of them at once, from its first use until it ends. They are opened when
they are needed and closed before the lease is settled, so that all processes together never have more open than there
are leases, however many processes run and wherever the leases go: no share of the pool belongs to a process, and none
lies idle in one while another waits. The price is the time to connect, which counts as the wait for a connection.
"""

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

import psycopg
from psycopg import errors

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
        self.open = 0  # connections of this process, by count alone

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
                    raise RateLimited(f"{name} can't be reached: {_said(error)}", retry_after_s=AWAY_AGAIN_S) from None
                if time.monotonic() + pause_s > until_s:
                    raise RateLimited(
                        f"{name} takes no more connections: {_said(error)}", retry_after_s=FULL_AGAIN_S
                    ) from None
            else:
                with self._lock:
                    self.open += 1
                return connection
            time.sleep(pause_s * random.uniform(0.5, 1.5))
            pause_s = min(2 * pause_s, PAUSE_S[1])

    def close(self, connection: Target) -> None:
        """Close a connection, whatever state it is in."""
        with suppress(psycopg.Error):
            connection.close()
        with self._lock:
            self.open -= 1

    def waited(self, name: str, seconds: float) -> None:
        """Note how long a task waited for a connection."""
        self._waits.note(name, seconds)

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
        """Close them: the task has ended, and its right ends with it."""
        with self._lock:
            self._over = True
            left = [one for some in self._free.values() for one in some]
            self._free.clear()
        for connection in left:
            self._shared.close(connection)

    def _take(self, name: str) -> Target:
        with self._lock:
            free = self._free.get(name)
            if free:
                return free.pop()
        return self._shared.connect(name, statement_s=self._statement_s, look=self._look)

    def _put(self, name: str, connection: Target) -> None:
        with self._lock:
            keep = not self._over and not connection.closed and not connection.broken
            if keep:
                self._free.setdefault(name, []).append(connection)
        if not keep:
            self._shared.close(connection)


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


def _said(error: Exception) -> str:
    return models.redact(" ".join(str(error).split()))[:500]
