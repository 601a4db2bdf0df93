"""An answer as it streams in: read on a thread of its own, so that who waits for it can leave at any moment.

A read of a socket can't be interrupted; a provider may be silent for a minute. So the reader thread waits, and the
kind's own looks every LOOK_S whether it should go on. A reader that is left behind ends at the provider's next sign of
life, or when its connection is shut.
"""

import contextlib
import contextvars
import functools
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

LOOK_S = 0.2
QUEUED = 256  # chunks read ahead, at most


class Reader:
    """Reads a stream of chunks on a thread. Iterate it on another; `close` leaves it, at once."""

    def __init__(self, begin: Callable[[], Any]) -> None:
        """`begin` makes the call and returns the openai client's stream; it runs on the thread."""
        self._begin = begin
        self._queue: queue.Queue[tuple[str, Any]] = queue.Queue(QUEUED)
        self._left = threading.Event()
        self._stream: Any = None
        # With the caller's context: what the client hears belongs to the call under way.
        read = functools.partial(contextvars.copy_context().run, self._read)
        self._thread = threading.Thread(target=read, name="llm-stream", daemon=True)

    def chunks(self, look: Callable[[], None]) -> Iterator[Any]:
        """Yield chunks as they come; `look` is called between them and every LOOK_S. Raises: as `begin`, as `look`."""
        self._thread.start()
        while True:
            look()
            try:
                what, value = self._queue.get(timeout=LOOK_S)
            except queue.Empty:
                continue
            if what == "end":
                return
            if what == "error":
                raise value
            yield value

    def close(self) -> None:
        """Leave: shut the connection if the answer isn't over."""
        self._left.set()
        stream = self._stream
        if stream is not None and self._thread.is_alive():
            with contextlib.suppress(Exception):
                # Closing it here wouldn't wake the reader; shutting the socket down does.
                connection = stream.response.extensions["network_stream"].get_extra_info("socket")
                connection.shutdown(socket.SHUT_RDWR)

    def _read(self) -> None:
        try:
            with self._begin() as stream:
                self._stream = stream
                for chunk in stream:
                    if self._left.is_set() or not self._put("chunk", chunk):
                        return
            self._put("end", None)
        except Exception as error:  # noqa: BLE001  # it is raised again where somebody waits for the chunks
            self._put("error", error)

    def _put(self, what: str, value: Any) -> bool:
        while not self._left.is_set():
            try:
                self._queue.put((what, value), timeout=LOOK_S)
            except queue.Full:
                continue
            return True
        return False
