"""ASGI middleware that lets long streams do without a thread each.

Django gives every request a thread of its own as soon as anything synchronous happens in it, and its own signals see to
that; the thread stays until the request ends, which for a stream may be a quarter of an hour. Streams share one: what
runs there is the signals' own few microseconds.
"""

import re
from concurrent.futures import ThreadPoolExecutor

from asgiref.sync import ThreadSensitiveContext

from harness.web.edge import Asgi, Receive, Scope, Send


class SharedThread:
    """Serves paths that match `pattern` (a whole path) over one thread for all of them; the others as they were."""

    def __init__(self, app: Asgi, *, pattern: str) -> None:
        self._app = app
        self._pattern = re.compile(pattern)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="streams")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or not self._pattern.fullmatch(scope["path"]):
            await self._app(scope, receive, send)
            return
        # Django's own context gives way to one that is there already.
        async with ThreadSensitiveContext(executor=self._thread):
            await self._app(scope, receive, send)
