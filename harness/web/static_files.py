"""WhiteNoise without its cost for everything else: as it comes it is synchronous, and takes each request a thread."""

from collections.abc import Awaitable, Callable

from asgiref.sync import markcoroutinefunction
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from whitenoise.middleware import WhiteNoiseMiddleware  # type: ignore[import-untyped]  # it has no types


class StaticFiles(WhiteNoiseMiddleware):  # type: ignore[misc]  # no types, as above
    """Serves static files, from the apps' own folders, to ASGI."""

    async_capable = True
    sync_capable = False

    def __init__(self, get_response: Callable[[HttpRequest], Awaitable[HttpResponseBase]]) -> None:
        super().__init__(get_response)
        self._next = get_response
        markcoroutinefunction(self)

    async def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Answer with the file, if the path is one's."""
        found = self.files.get(request.path_info)
        if found is None:
            return await self._next(request)
        served = found.get_response(request.method, request.META)
        # Read at once: the files are small, and Django would warn about a synchronous iterator.
        content = served.file.read() if served.file else b""
        if served.file:
            served.file.close()
        response = HttpResponse(content, status=int(served.status))
        del response["Content-Type"]
        for name, value in served.headers:
            response[name] = value
        return response
