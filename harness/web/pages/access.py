"""Who looks at a page: a person with the admin's session, or the bearer of a signed link.

A session is a login's: tied to a tenant it sees that tenant alone; an operator's (or viewer's) sees every tenant. It is
looked up once a request, on Django's connection under role `staff`, and the page itself then reads under role `web`,
held to one tenant. A link needs no look-up.
"""

import asyncio
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import import_module

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.auth.models import User
from django.db import OperationalError
from django.http import HttpRequest

from harness.policy.errors import HarnessError, Unavailable
from harness.store import people, staff
from harness.web.pages import shared
from harness.web.pages.shared import PageLink

AT_ONCE = 2  # look-ups of sessions: each holds one of Django's connections for a few statements
OPERATE = "store.operate"


class NoLogin(HarnessError):
    """Nobody is logged in here, or the login has neither a tenant nor the right to see every one."""

    code = "unauthenticated"


class NotYours(HarnessError):
    """The login may not see this page."""

    code = "forbidden"


@dataclass(frozen=True, kw_only=True, slots=True)
class Viewer:
    """Who looks. `tenant` None: every tenant's (operators, viewers). `root`: the path that this viewer's pages stand
    below, without a slash at its end. `may_act`: may press buttons. `person`: what one-time tokens are made out to;
    `rights`: permissions of a login that sees every tenant.
    """

    tenant: int | None
    tenant_name: str
    name: str
    actor: str
    root: str
    may_act: bool
    person: str
    link: PageLink | None = None
    rights: frozenset[str] = frozenset()

    @property
    def is_operator(self) -> bool:
        """Whether every tenant is seen, and operators' pages with them."""
        return self.tenant is None

    def task_path(self, task: uuid.UUID) -> str:
        """Return where a task's page is, for this viewer."""
        return f"{self.root}/tasks/{task}/"

    def run_path(self, run: uuid.UUID) -> str:
        """Return where a run's page is, for this viewer."""
        return f"{self.root}/runs/{run}/"


async def of(request: HttpRequest, link: str | None = None) -> Viewer:
    """Return who looks. Raises: NoLogin, PageLinkAltered, PageLinkExpired, Unavailable."""
    if link is not None:
        opened = shared.read(link, now=datetime.now(UTC))
        return Viewer(
            tenant=opened.tenant,
            tenant_name="",
            name=opened.label,
            actor=opened.actor,
            root=f"{shared.PATH}{link}",
            may_act=opened.acts,
            person=f"link {link.rpartition(':')[2]}",
            link=opened,
        )
    key = request.COOKIES.get(settings.SESSION_COOKIE_NAME)
    if not key:
        raise NoLogin("nobody is logged in")
    async with _room(asyncio.get_running_loop()):
        return await sync_to_async(_by_session)(request, key)


@cache
def _room(loop: asyncio.AbstractEventLoop) -> asyncio.Semaphore:
    return asyncio.Semaphore(AT_ONCE)


def _by_session(request: HttpRequest, key: str) -> Viewer:
    request.session = import_module(settings.SESSION_ENGINE).SessionStore(key)
    try:
        staff.assume()
        try:
            user = get_user(request)
            if not isinstance(user, User) or not (user.is_active and user.is_staff):
                raise NoLogin("nobody is logged in")
            scope = people.scope_of(user)
            if scope.tenant is None and not scope.everything:
                raise NotYours("this login has no tenant yet, so there is nothing to see: an administrator can tie it")
            return Viewer(
                tenant=scope.tenant,
                tenant_name=people.tenant_name(scope.tenant) if scope.tenant is not None else "Operations",
                name=user.get_username(),
                actor=f"staff:{user.get_username()}",
                root="/work",
                may_act=user.has_perm(OPERATE),
                person=f"login {user.pk}",
                rights=frozenset(user.get_all_permissions()) if scope.everything else frozenset(),
            )
        finally:
            staff.resign()
    except OperationalError as error:
        raise Unavailable("the database doesn't answer; try again shortly") from error
