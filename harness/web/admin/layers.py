"""Middleware of the admin, at work below /admin/ only: the API's path stays as short as it is.

One async middleware holds the chain that HARNESS_ADMIN_LAYERS names (sessions, CSRF, logins, messages, throttling,
CSP), and gives each request a database connection under role `staff`. At most AT_ONCE requests are served at once,
since each holds a connection; the others wait.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import markcoroutinefunction, sync_to_async
from django.conf import settings
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.template.loader import render_to_string
from django.utils.module_loading import import_string

from harness.store import staff
from harness.telemetry import logs

Handler = Callable[[HttpRequest], Awaitable[HttpResponseBase]]

AT_ONCE = 3  # of the connections that store.sessions keeps for everything but workers; a verb opens one more
REQUIRED = (
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "axes.middleware.AxesMiddleware",
    "csp.middleware.CSPMiddleware",
)

log = logs.get(__name__)


class AdminLayers:
    """Django middleware, last in line."""

    async_capable = True
    sync_capable = False

    def __init__(self, get_response: Handler) -> None:
        self._next = get_response
        self._views: list[Callable[..., Any]] = []
        self._room = asyncio.Semaphore(AT_ONCE)
        chain = get_response
        for name in reversed(settings.HARNESS_ADMIN_LAYERS):
            chain = import_string(name)(chain)
            if hasattr(chain, "process_exception") or hasattr(chain, "process_template_response"):
                raise ImproperlyConfigured(f"HARNESS_ADMIN_LAYERS: {name} has a hook that nothing here calls")
            if hasattr(chain, "process_view"):
                self._views.insert(0, chain.process_view)
        self._chain = chain
        markcoroutinefunction(self)

    async def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Pass the request on, through the chain if it is the admin's."""
        if not _is_admins(request):
            return await self._next(request)
        async with self._room:
            try:
                await sync_to_async(staff.assume)()
                try:
                    return await self._chain(request)
                finally:
                    await sync_to_async(staff.resign)()
            except OperationalError as error:
                log.warning("admin_without_database", error=str(error).partition("\n")[0])
                return _unavailable()

    async def process_view(
        self, request: HttpRequest, view: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> HttpResponseBase | None:
        """Let the chain look at the view before it runs (CSRF does); hold the connection to the person's tenant."""
        if not _is_admins(request):
            return None
        return await sync_to_async(self._before_view)(request, view, args, kwargs)

    def _before_view(
        self, request: HttpRequest, view: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> HttpResponseBase | None:
        for hook in self._views:
            answer: HttpResponseBase | None = hook(request, view, args, kwargs)
            if answer is not None:
                return answer
        from harness.web.admin.scope import scope_of  # models load only after Django is set up

        scope = scope_of(request)
        if not scope.everything:
            # Nobody's rows for who has no tenant: no tenant has the number 0.
            staff.hold_to(scope.tenant or 0)
        return None


def _is_admins(request: HttpRequest) -> bool:
    return request.path_info.startswith("/admin/") or request.path_info == "/admin"


def _unavailable() -> HttpResponse:
    page = render_to_string("harness/admin/unavailable.html")
    return HttpResponse(page, status=503, headers={"Retry-After": "2", "Content-Security-Policy": "default-src 'none'"})


@checks.register(checks.Tags.security)
def check_layers(**_: object) -> list[checks.CheckMessage]:
    """Find a layer that the admin can't be without."""
    missing = [name for name in REQUIRED if name not in settings.HARNESS_ADMIN_LAYERS]
    return [
        checks.Error(f"HARNESS_ADMIN_LAYERS lacks {name}", hint="Put it back: the admin needs it.", id="harness.E001")
        for name in missing
    ]
