"""What one web process holds: a bounded pool of connections under role `web`, threads to wait in, and the door.

Statements run on threads of our own, at most THREADS at once: Django's executor would run them one at a time, and the
event loop must not wait. Nothing here knows Celery or Redis.
"""

import asyncio
import functools
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from django.conf import settings
from psycopg_pool import ConnectionPool, PoolTimeout

from harness.engine.submit import Door
from harness.kinds import registry
from harness.policy.errors import Invalid, Unavailable
from harness.store import keys
from harness.store.database import Connection, borrowed, open_pool
from harness.store.keys import Caller

T = TypeVar("T")

CONNECTIONS = 6  # of those that store.sessions keeps for everything but workers
KEY_HOURS_MAX = 24 * 365
THREADS = 8  # more than connections: checking a payload needs none
WAIT_S = 2.0  # for a connection; then 503
ANSWER_S = 30.0  # a run of 10,000 tasks on a busy machine; a database that has gone silent ends no statement
LOOK_S = 5.0  # what reads one row: who asks, whether work can go on
SHUT_S = 1.0  # after such a wait, 503 at once unless a connection is free


class Service:
    """The state of one web process. Make it with `service()`."""

    def __init__(
        self,
        url: str,
        *,
        body_max_bytes: int,
        run_max_tasks: int,
        ttl_s: Sequence[float | None],
        keep_keys_s: float,
    ) -> None:
        self.pool: ConnectionPool[Connection] = open_pool(
            url, "web", size=CONNECTIONS, application_name="harness-web", wait_s=WAIT_S
        )
        self.door = Door(
            body_max_bytes=body_max_bytes, run_max_tasks=run_max_tasks, ttl_s=ttl_s, keep_keys_s=keep_keys_s
        )
        self._shut_until_s = 0.0
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="web")

    async def on_thread(self, work: Callable[[], T], *, within_s: float = ANSWER_S) -> T:
        """Do work that waits or computes, off the event loop. Raises: Unavailable when it takes longer than `within_s`.

        The thread goes on: what it writes may still be committed, which is what an Idempotency-Key is for.
        """
        done = asyncio.get_running_loop().run_in_executor(self._threads, work)
        try:
            return await asyncio.wait_for(done, within_s)
        except TimeoutError:
            raise Unavailable(
                f"no answer from the database within {within_s:.0f} s; it may have been written: "
                "try again with the same Idempotency-Key"
            ) from None

    def with_connection(self, work: Callable[[Connection], T]) -> T:
        """Do work with a connection, on a thread. Raises: Unavailable."""
        if time.monotonic() < self._shut_until_s and not self.pool.get_stats().get("pool_available"):
            raise Unavailable("the database doesn't answer; try again shortly")
        try:
            with borrowed(self.pool) as connection:
                return work(connection)
        except Unavailable as error:
            if isinstance(error.__cause__, PoolTimeout):
                # Whoever comes next need not wait as long for the same answer, and hold a thread meanwhile.
                self._shut_until_s = time.monotonic() + SHUT_S
            raise

    def authenticate(self, key: str) -> Caller:
        """Return who shows this key. Raises: Unauthenticated, Unavailable.

        It only reads, so it may try again: after a restart of the database the pool's connections are all stale.
        """
        work = functools.partial(keys.authenticate, key=key)
        try:
            return self.with_connection(work)
        except Unavailable as error:
            if error.__cause__ is None or isinstance(error.__cause__, PoolTimeout):
                raise
            self.pool.check()
            return self.with_connection(work)

    def close(self) -> None:
        """Let work under way end and close the connections."""
        self._threads.shutdown(wait=True)
        self.pool.close()


_service: Service | None = None
_lock = threading.Lock()


def service() -> Service:
    """Return this process's service; the first call opens it and loads the kinds. Raises: Invalid (settings, kinds)."""
    global _service
    if _service is None:
        with _lock:
            if _service is None:
                if not settings.DATABASE_URL:
                    raise Invalid(
                        "DATABASE_URL is not set: name a PostgreSQL server, or start one with `manage.py stack up`",
                        field="DATABASE_URL",
                    )
                for package in settings.HARNESS_TASK_PACKAGES:
                    try:
                        registry.discover(package)
                    except ImportError as error:
                        raise Invalid(
                            f"HARNESS_TASK_PACKAGES: {package!r} can't be loaded: {error}",
                            field="HARNESS_TASK_PACKAGES",
                        ) from error
                registry.check_against(settings.HARNESS_TOPOLOGY)
                if not 0 < settings.HARNESS_IDEMPOTENCY_HOURS <= KEY_HOURS_MAX:
                    raise Invalid(
                        f"HARNESS_IDEMPOTENCY_HOURS is {settings.HARNESS_IDEMPOTENCY_HOURS:g}; it must be above 0 "
                        f"and at most {KEY_HOURS_MAX:,}: for so long an Idempotency-Key stands for what it made",
                        field="HARNESS_IDEMPOTENCY_HOURS",
                    )
                _service = Service(
                    settings.DATABASE_URL,
                    body_max_bytes=settings.HARNESS_BODY_MAX_BYTES,
                    run_max_tasks=settings.HARNESS_RUN_MAX_TASKS,
                    ttl_s=settings.HARNESS_TTL_S,
                    keep_keys_s=3600.0 * settings.HARNESS_IDEMPOTENCY_HOURS,
                )
    return _service


def close() -> None:
    """Close this process's service, if it was opened."""
    global _service
    with _lock:
        if _service is not None:
            _service.close()
            _service = None
