"""Bodies that a view reads itself, piece by piece, after it knows who sends them. Django would read all of one first.

`OpenBodies` stands outside Django: for its paths it hides the body from Django and puts a `Body` in the scope.
Nothing is read before the view asks, so a refused upload is not sent by a client that waits for `100 Continue`.
"""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TypeVar, cast

from django.http import HttpRequest

from harness.policy.admission import OverQuota
from harness.policy.errors import HarnessError, Unavailable
from harness.web.edge import Asgi, Message, Receive, Scope, Send

T = TypeVar("T")

SCOPE_KEY = "harness.body"
CHUNK_BYTES = 256 * 1024
IDLE_S = 30.0  # without a byte; then the upload is over
LINGER_S = 2.0  # an answer before the end of a body is lost if the connection is cut while the client still sends
AT_ONCE = 16
AT_ONCE_PER_TENANT = 4
BUSY_RETRY_S = 2.0
FILE_THREADS = 6  # apart from those that answer everything else: a slow store must not stop the API


class CutOff(HarnessError):
    """The body ended before its end, or stopped coming."""

    code = "bad_request"


class Body:
    """The body of one request, read once."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.ended = False

    async def chunks(self, most_bytes: int = CHUNK_BYTES) -> AsyncIterator[bytes]:
        """Yield the body in pieces of at least `most_bytes` (the last may be shorter). Raises: CutOff."""
        held = bytearray()
        while not self.ended:
            held += await self._next()
            if len(held) >= most_bytes:
                yield bytes(held)
                held.clear()
        if held:
            yield bytes(held)

    async def drain(self) -> None:
        """Read what still comes and forget it, for LINGER_S at most."""
        with suppress(TimeoutError, CutOff):
            async with asyncio.timeout(LINGER_S):
                while not self.ended:
                    await self._next()

    async def _next(self) -> bytes:
        try:
            async with asyncio.timeout(IDLE_S):
                message = await self._receive()
        except TimeoutError:
            self.ended = True
            raise CutOff(f"body: no byte came for {IDLE_S:g} s", field="body") from None
        if message["type"] == "http.disconnect":
            self.ended = True
            raise CutOff("body: the connection ended before it", field="body")
        self.ended = not message.get("more_body", False)
        return cast(bytes, message.get("body", b""))


class OpenBodies:
    """ASGI middleware: leaves the bodies of POSTs to these paths to the views."""

    def __init__(self, app: Asgi, *, paths: Collection[str]) -> None:
        self._app = app
        self._paths = frozenset(paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"].rstrip("/") not in self._paths:
            await self._app(scope, receive, send)
            return
        body = Body(receive)
        told = False

        async def nothing() -> Message:
            nonlocal told
            if told:  # Django listens for a client that goes; here the view notices that itself, and cleans up
                await asyncio.get_running_loop().create_future()
            told = True
            return {"type": "http.request", "body": b"", "more_body": False}

        async def linger(message: Message) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body") and not body.ended:
                await send({**message, "more_body": True})
                await body.drain()
                message = {"type": "http.response.body", "body": b""}
            elif message["type"] == "http.response.start" and not body.ended:
                message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
            await send(message)

        await self._app({**scope, SCOPE_KEY: body}, nothing, linger)


def body_of(request: HttpRequest) -> Body:
    """Return the body of a request to a path of OpenBodies."""
    return cast(Body, request.scope[SCOPE_KEY])  # type: ignore[attr-defined]  # an ASGIRequest


class Places:
    """How many uploads this process takes at once. Used on the event loop only."""

    def __init__(self) -> None:
        self._taken: dict[int, int] = {}

    @contextmanager
    def taken(self, tenant: int) -> Iterator[None]:
        """Take a place. Raises: OverQuota, Unavailable."""
        own = self._taken.get(tenant, 0)
        if own >= AT_ONCE_PER_TENANT:
            raise OverQuota(
                f"{own} uploads of this tenant are under way here, as many as it may have at once: wait for one",
                retry_after_s=BUSY_RETRY_S,
            )
        if sum(self._taken.values()) >= AT_ONCE:
            raise Unavailable("too many uploads are under way; try again shortly", retry_after_s=BUSY_RETRY_S)
        self._taken[tenant] = own + 1
        try:
            yield
        finally:
            left = self._taken.pop(tenant) - 1
            if left:
                self._taken[tenant] = left


places = Places()


@functools.cache
def _file_threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(FILE_THREADS, thread_name_prefix="file")


async def on_file_thread(work: Callable[[], T]) -> T:
    """Do work that waits for files, off the event loop and beside the threads that answer everything else."""
    return await asyncio.get_running_loop().run_in_executor(_file_threads(), work)
