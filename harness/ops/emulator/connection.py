"""One client's connection: requests one after the other to the application, and the ways to answer, or not to."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

from harness.ops.emulator import http1

READ_AHEAD_BYTES = 256 * 1024  # a client may send its next request early, but no more than this of it

Handler = Callable[[http1.Request, "Connection"], Awaitable[None]]

JSON = b"application/json"
EVENTS = b"text/event-stream; charset=utf-8"


class Connection(asyncio.Protocol):
    """What the application writes its answer to. It answers exactly once for each request, or drops."""

    def __init__(self, handler: Handler, open_ones: "set[Connection]") -> None:
        self._handler = handler
        self._open_ones = open_ones
        self._parser = http1.Parser()
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._keep_alive = True
        self._retired = False
        self._begun = b""
        self._left: asyncio.Future[None] | None = None
        self.gone = False

    def retire(self) -> asyncio.Task[None] | None:
        """Take no further request. Returns the answering of the one that is going on; idle connections are closed."""
        self._retired, self._keep_alive = True, False
        if self._task is None:
            self._transport.close()
        return self._task

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._open_ones.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._open_ones.discard(self)
        self.gone = True
        if self._left is not None and not self._left.done():
            self._left.set_result(None)

    def data_received(self, data: bytes) -> None:
        self._parser.feed(data)
        if self._task is None:
            self._next()
        elif self._parser.waiting_bytes > READ_AHEAD_BYTES:
            self._transport.pause_reading()

    def send(self, status: int, body: bytes, lines: bytes = b"") -> None:
        """Answer whole, in JSON."""
        if not self.gone:
            self._transport.write(self._head(status, lines, JSON, len(body)) + body)

    def begin(self, lines: bytes) -> None:
        """Begin a stream of events with 200, sent with its first piece; `write` and `end` follow."""
        self._begun = self._head(200, lines, EVENTS, None)

    def write(self, data: bytes) -> None:
        """Send a piece of the stream."""
        if not self.gone:
            self._transport.write(self._begun + http1.chunk(data))
            self._begun = b""

    def end(self, data: bytes) -> None:
        """Send the last piece, and that it was the last."""
        if not self.gone:
            self._transport.write(http1.chunk(data) + http1.LAST_CHUNK)

    def cut(self, body: bytes | None = None, lines: bytes = b"") -> None:
        """Break off: in the middle of the stream that was begun, or of `body`. What was sent reaches the client."""
        if not self.gone:
            if body is not None:
                self._transport.write(self._head(200, lines, JSON, len(body)) + body[: len(body) // 2])
            self._transport.close()

    def drop(self) -> None:
        """End the connection without an answer."""
        self._transport.abort()

    async def left(self, timeout_s: float) -> None:
        """Return when the client has left, or when the time is over."""
        if not self.gone:
            self._left = self._loop.create_future()
            await asyncio.wait((self._left,), timeout=timeout_s)

    def _head(self, status: int, lines: bytes, content_type: bytes, length: int | None) -> bytes:
        return http1.head(status, lines, content_type=content_type, length=length, keep_alive=self._keep_alive)

    def _next(self) -> None:
        try:
            request = self._parser.next()
        except http1.Malformed as wrong:
            request = http1.Request("", "", b"", False, wrong)
        if request is None:
            if self._parser.expects:
                self._parser.expects = False
                self._transport.write(http1.CONTINUE)
            return
        self._keep_alive = request.keep_alive and not self._retired
        self._task = self._loop.create_task(self._answer(request))
        self._task.add_done_callback(self._done)

    async def _answer(self, request: http1.Request) -> None:
        await self._handler(request, self)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if task.cancelled():
            self._transport.abort()
            return
        error = task.exception()
        if error is not None:
            # A fault of the emulator's own: the client sees a dropped connection, the log says why.
            self._transport.abort()
            self._loop.call_exception_handler({"message": "an answer failed", "exception": error})
        elif not self._keep_alive:
            self._transport.close()
        elif not self.gone and not self._transport.is_closing():
            self._transport.resume_reading()
            self._next()
