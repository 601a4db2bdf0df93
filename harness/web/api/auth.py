"""Bearer keys at the door of the API. Every operation asks for one scope."""

from collections.abc import Coroutine
from typing import Any, cast

from django.http import HttpRequest
from ninja.security import HttpBearer

from harness.policy.admission import Forbidden
from harness.store.keys import Caller, Unauthenticated
from harness.web.service import LOOK_S, service


class ApiKey(HttpBearer):
    """`Authorization: Bearer hk_..`, with a scope."""

    def __init__(self, scope: str) -> None:
        super().__init__()
        self._scope = scope

    def __call__(self, request: HttpRequest) -> Coroutine[Any, Any, Caller]:
        """Begin to authenticate. Raises: Unauthenticated."""
        scheme, _, key = request.headers.get(self.header, "").partition(" ")
        if scheme.lower() != self.openapi_scheme or not key:
            raise Unauthenticated("send a key: `Authorization: Bearer hk_..`; `manage.py key create TENANT` makes one")
        return self.authenticate(request, key.strip())

    async def authenticate(self, request: HttpRequest, token: str) -> Caller:
        """Return who asks. Raises: Unauthenticated, Forbidden, Unavailable."""
        serving = service()
        caller = await serving.on_thread(lambda: serving.authenticate(token), within_s=LOOK_S)
        if self._scope not in caller.scopes:
            raise Forbidden(f"this key may not {self._scope}: its scopes are {', '.join(sorted(caller.scopes))}")
        return caller


READ = ApiKey("read")
WRITE = ApiKey("write")


def caller_of(request: HttpRequest) -> Caller:
    """Return who asks, after authentication."""
    return cast(Caller, request.auth)  # type: ignore[attr-defined]  # ninja puts it there
