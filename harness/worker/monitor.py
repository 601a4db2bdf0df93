"""Flower behind a door: no path without the login, nothing but reading.

Flower 2.2 asks for its login on pages and /api/ but leaves /metrics, /healthcheck and its static files open. The check
here stands before its routing, so that it covers every path there is, or will be. Without a configured login nobody
gets in. Its own `read_only` refuses control; here every method but GET and HEAD is refused beside that.
"""

import binascii
import hmac
from base64 import b64decode
from typing import Any

from tornado.httputil import HTTPMessageDelegate, HTTPServerRequest
from tornado.web import RequestHandler

# Each of Flower's inspections holds one connection and asks for a second: with fewer than two each, all wait for ever.
BROKER_CONNECTIONS = 16
READING = frozenset({"GET", "HEAD"})


class Refused(RequestHandler):
    """The answer to who shows no login, or wants more than to read."""

    def initialize(self, status: int) -> None:
        """Keep the status."""
        self._status = status

    async def prepare(self) -> None:
        """Answer, whatever the method."""
        self.set_status(self._status)
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Content-Type", "text/plain")
        if self._status == 401:
            self.set_header("WWW-Authenticate", 'Basic realm="flower", charset="UTF-8"')
            await self.finish("a login is needed\n")
        else:
            await self.finish("Flower is read-only here; act on tasks in the admin\n")

    def check_xsrf_cookie(self) -> None:
        """Nothing is changed, so nothing has to be proven."""


def admitted(header: str, logins: list[str]) -> bool:
    """Whether an Authorization header shows one of these logins (`name:password`).

    >>> admitted("Basic bWU6c2VjcmV0", ["me:secret"]), admitted("Basic bWU6c2VjcmV0", []), admitted("", ["me:secret"])
    (True, False, False)
    """
    scheme, _, shown = header.partition(" ")
    if scheme.lower() != "basic":
        return False
    try:
        said = b64decode(shown.strip(), validate=True)
    except (binascii.Error, ValueError):
        return False
    return any(hmac.compare_digest(said, login.encode()) for login in logins)


def close_door() -> None:
    """Put the check before Flower's routing, in this process."""
    from flower.app import Flower

    route = Flower.find_handler

    def guarded(self: Any, request: HTTPServerRequest, **more: Any) -> HTTPMessageDelegate:
        if not admitted(request.headers.get("Authorization", ""), self.options.basic_auth or []):
            return self.get_handler_delegate(request, Refused, {"status": 401})  # type: ignore[no-any-return]  # untyped
        if request.method not in READING:
            return self.get_handler_delegate(request, Refused, {"status": 403})  # type: ignore[no-any-return]  # untyped
        return route(self, request, **more)  # type: ignore[no-any-return]  # untyped

    Flower.find_handler = guarded
