"""The consumer step that drops a message which can't be read, on Redis: anybody with its password can put one there.

kombu decodes a message on Celery's loop, and what that raises ends the worker, with all that runs on it; the next one
that its supervisor starts takes the next such message. A message here is a hint, so nothing is lost with one: a lease
whose message was dropped goes back in line after 10 s.
"""

from collections.abc import Callable
from queue import Empty
from typing import Any

from celery import bootsteps

from harness.telemetry import logs

log = logs.get(__name__)


class Unreadable(bootsteps.StartStopStep):
    """Keep the loop from what a message makes of it. `dropped`: how many messages this process couldn't read."""

    requires = ("celery.worker.consumer.tasks:Tasks", "harness.worker.intake:Intake")

    def __init__(self, parent: Any, **options: Any) -> None:
        """Celery makes the step once; it starts it again with each connection."""
        super().__init__(parent, **options)
        self.dropped = 0

    def start(self, parent: Any) -> None:
        """Celery calls this before it consumes, and again after each reconnect, with a new channel."""
        if parent.connection.transport.driver_type != "redis":
            return
        channel = parent.task_consumer.channel
        channel.handlers["BRPOP"] = self._readable(channel.handlers["BRPOP"])

    def stop(self, parent: Any) -> None:
        """Nothing to stop."""

    def _readable(self, read: Callable[..., Any]) -> Callable[..., Any]:
        from redis.exceptions import RedisError

        def tolerant(**options: Any) -> Any:
            try:
                return read(**options)
            except (Empty, OSError, RedisError):  # a connection that broke is the loop's own business
                raise
            except Exception as error:  # noqa: BLE001  # whatever a message of anybody's makes kombu or Celery raise
                self._drop(error)
                raise Empty from None

        return tolerant

    def _drop(self, error: Exception) -> None:
        for one in error.exceptions if isinstance(error, ExceptionGroup) else (error,):
            self.dropped += 1
            log.warning("message_dropped", error=str(one)[:200], error_type=type(one).__name__, dropped=self.dropped)
