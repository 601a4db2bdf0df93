"""The context of a running task: `kinds.Context`, fenced. Every effect goes through here or not at all."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from harness.engine import downstream
from harness.engine.process import ProcessState, Running
from harness.kinds.errors import Cancelled
from harness.store.database import Connection
from harness.store.transitions import ClaimedTask

T = TypeVar("T")


class RunContext:
    """One attempt at one task; implements `kinds.Context`."""

    __slots__ = ("_process", "_resources", "_running", "_task")

    def __init__(self, process: ProcessState, running: Running, task: ClaimedTask, resources: frozenset[str]) -> None:
        self._process = process
        self._running = running
        self._task = task
        self._resources = resources

    @property
    def task_id(self) -> str:
        """The public id."""
        return str(self._task.public_id)

    @property
    def tenant_id(self) -> int:
        """The tenant whose work this is."""
        return self._task.tenant

    @property
    def token(self) -> str:
        """The same over all attempts of the task."""
        return f"harness-{self._task.public_id}"

    def cancelled(self) -> bool:
        """Whether the task should end: a wish, a drain, a time-out, or a lost lease."""
        return self._running.stop is not None or not self._process.fence.is_open()

    def checkpoint(self) -> None:
        """Raises: Cancelled, LeaseLost."""
        self._process.fence.check()
        if self._running.stop is not None:
            raise Cancelled(self._running.stop)

    def call(self, resource: str, fn: Callable[[], T]) -> T:
        """Call a declared downstream once. Raises: see `kinds.Context.call`."""
        if resource not in self._resources:
            raise ValueError(
                f"this kind doesn't declare the resource {resource!r}; it declares {sorted(self._resources)}"
            )
        self.checkpoint()
        return downstream.call(fn)

    @contextmanager
    def db(self) -> Iterator[Connection]:
        """A connection in a transaction, from the process's pool. Raises: LeaseLost."""
        self._process.fence.check()
        with self._process.db.connection() as connection, connection.transaction():
            yield connection
