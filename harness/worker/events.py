"""The consumer step that sends the events for Flower a few times a second, and not after each task.

Celery flushes its buffer of events once a turn of its loop: under load that is one PUBLISH, over a connection looked up
anew, for each message it takes, and half of what the loop spends (py-spy, 50 slots of 100 ms).
"""

from contextlib import suppress
from typing import Any

from celery import bootsteps

EVERY_S = 0.5  # Flower shows a task this much later, at most
BUFFERED = 1000  # events; a buffer that is full is sent at once


class Events(bootsteps.StartStopStep):
    """Flush the buffer by a timer of the loop."""

    requires = ("celery.worker.consumer.events:Events",)

    def __init__(self, parent: Any, **options: Any) -> None:
        """Celery makes the step once; it starts it again with each connection."""
        super().__init__(parent, **options)
        self._timer: Any = None

    def start(self, parent: Any) -> None:
        """After the dispatcher of events was made, and again after each reconnect, with a new one."""
        self.stop(parent)
        dispatcher = parent.event_dispatcher
        if parent.hub is None or dispatcher is None:
            return
        dispatcher.on_send_buffered = None
        dispatcher.buffer_limit = BUFFERED
        self._timer = parent.hub.call_repeatedly(EVERY_S, parent._flush_events)

    def stop(self, parent: Any) -> None:
        """Send what is buffered and nothing more by this timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            with suppress(*parent.connection_errors):
                parent._flush_events()
