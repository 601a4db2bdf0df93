"""The outermost layers of a request: a limit on its size (ASGI), security headers, problem documents for every error.

Async throughout: a middleware that isn't would cost each request a thread for as long as it lasts.
"""

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any

from asgiref.sync import markcoroutinefunction
from django.core.exceptions import DisallowedHost
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from harness.policy.errors import HarnessError
from harness.web import problems

Message = Mapping[str, Any]
Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
MACHINE_PATHS = ("/api/", "/health/", "/metrics")


class Edge:
    """Django middleware, first in line: headers on every answer, problem documents for what machines ask."""

    async_capable = True
    sync_capable = False

    def __init__(self, get_response: Callable[[HttpRequest], Awaitable[HttpResponseBase]]) -> None:
        self._get_response = get_response
        markcoroutinefunction(self)

    async def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Pass the request on."""
        response = self._wrong_host(request) or await self._get_response(request)
        if (
            response.status_code >= HTTPStatus.BAD_REQUEST
            and request.path.startswith(MACHINE_PATHS)
            and isinstance(response, HttpResponse)
            and response.get("Content-Type") != problems.CONTENT_TYPE
        ):
            response = problems.plain(response, request)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        if isinstance(response, HttpResponse):  # else it would go out in chunks
            response.headers.setdefault("Content-Length", str(len(response.content)))
        return response

    @staticmethod
    def _wrong_host(request: HttpRequest) -> HttpResponse | None:
        # A page elsewhere could point its own name here (DNS rebinding). Probes come with an address for a name.
        if request.path.startswith("/health/"):
            return None
        try:
            request.get_host()
        except DisallowedHost:
            return problems.problem("bad_request", "this host name is not served here; ALLOWED_HOSTS lists what is")
        return None


class Lifespan:
    """ASGI middleware: opens what the process holds before the first request, and closes it after the last.

    Neither may raise what isn't a reason to end: a server that fails to start prints it and exits.
    """

    def __init__(self, app: Asgi, *, startup: Callable[[], object], shutdown: Callable[[], object]) -> None:
        self._app = app
        self._startup = startup
        self._shutdown = shutdown

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the process's life."""
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    self._startup()
                except HarnessError as error:
                    await send({"type": "lifespan.startup.failed", "message": error.message})
                    return
                await send({"type": "lifespan.startup.complete"})
            else:
                self._shutdown()
                await send({"type": "lifespan.shutdown.complete"})
                return


class _TooLong(Exception):
    pass


class SizeLimit:
    """ASGI middleware: refuses a body that is too large before it is read to its end. `limits`: by path, in bytes."""

    def __init__(self, app: Asgi, *, default_bytes: int, limits: Mapping[str, int]) -> None:
        self._app = app
        self._default = default_bytes
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = self._limits.get(scope["path"].rstrip("/"), self._default)
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit() and int(value) > limit:
                await _refuse(send, limit)
                return
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > limit:
                raise _TooLong
            return message

        try:
            await self._app(scope, counted, send)
        except _TooLong:
            await _refuse(send, limit)  # Django answers only after the whole body, so nothing has been sent yet


async def _refuse(send: Send, limit: int) -> None:
    answer = problems.problem("too_large", f"the body is larger than {limit:,} bytes, the limit here", field="body")
    headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in answer.items()]
    headers += [(b"content-length", str(len(answer.content)).encode()), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": answer.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": answer.content})
