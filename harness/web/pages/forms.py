"""Buttons that act once: each form carries a signed token, and a token is taken once, so a double click is one action.

A token says who may send it, what for, and of which moment of the thing shown (`purpose`), so it is the same in every
rendering of that moment: a page that renews itself under a finger, or a second window, can't make a second action of
it. It is what keeps other sites from sending the form, too: they can't know it.
"""

import asyncio
import uuid
from dataclasses import dataclass
from datetime import datetime

from asgiref.sync import sync_to_async
from django.core import signing
from django.db import OperationalError
from django.http import HttpRequest

from harness.policy.errors import Unavailable
from harness.store import people, staff
from harness.web.pages.access import Viewer

FIELD = "once"
LIFE_S = 86_400  # at least so long a page with a form may stay open; at most twice
TOO_OLD = "This page was open for too long. Nothing was done; press again."
ACTED = "That was sent already; it acted once."
_SALT = "harness.page.once"


class StaleForm(Exception):
    """The form's token is missing, not of this form or person, or too old."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Button:
    """A button that is a form of its own (harness/pages/press.html). `doing`: what it says until the page has changed.

    `look`: "", primary or danger; `fields`: what is sent with it.
    """

    id: str
    label: str
    path: str
    token: str
    doing: str
    look: str = ""
    fields: tuple[tuple[str, str], ...] = ()


def token(viewer: Viewer, purpose: str, *, now: datetime) -> str:
    """Return the token of one form. `purpose`: what it does, to what, as it stands now."""
    until_s = (int(now.timestamp()) // LIFE_S + 2) * LIFE_S
    return signing.Signer(salt=_SALT).sign_object([viewer.person, purpose, until_s], compress=True)


def read(viewer: Viewer, sent: str, *, begins: str, now: datetime) -> uuid.UUID:
    """Return what a token is taken by. `begins`: how its purpose must begin. Raises: StaleForm."""
    try:
        person, purpose, until_s = signing.Signer(salt=_SALT).unsign_object(sent)
    except (signing.BadSignature, ValueError):
        raise StaleForm from None
    if person != viewer.person or not purpose.startswith(begins) or now.timestamp() > until_s:
        raise StaleForm
    return uuid.uuid5(uuid.NAMESPACE_OID, f"{person}\n{purpose}")


async def take(viewer: Viewer, request: HttpRequest, *, begins: str, now: datetime) -> uuid.UUID | None:
    """Take the token that was sent; None when it was taken before. Raises: StaleForm, Unavailable."""
    taken = read(viewer, request.POST.get(FIELD, ""), begins=begins, now=now)
    return taken if await sync_to_async(_as_staff)(taken, give_back=False) else None


async def give_back(taken: uuid.UUID) -> None:
    """Let a token be sent again: what it was taken for hasn't happened. Raises: Unavailable."""
    await asyncio.shield(sync_to_async(_as_staff)(taken, give_back=True))


def _as_staff(taken: uuid.UUID, *, give_back: bool) -> bool:
    try:
        staff.assume()
        try:
            if give_back:
                people.give_back_form(taken)
                return True
            return people.take_form(taken)
        finally:
            staff.resign()
    except OperationalError as error:
        raise Unavailable("the database doesn't answer; try again shortly") from error
