"""Signed links to pages: whoever has one sees one task or one run, with what belongs to it, until the link expires.

A link is a text of its own, stored nowhere, signed with SECRET_KEY. It opens the pages below its object alone (a task
with its descendants, a run with its tasks), and lets act only if it was made so.
"""

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from django.conf import settings
from django.core import signing

from harness.policy.errors import HarnessError, Invalid

LIFE_S: Final = 86_400.0  # of a link, unless its maker says
LIFE_MOST_S: Final = 90 * 86_400.0
LABEL_MOST_CHARS: Final = 60
PATH: Final = "/shared/"
_SALT = "harness.page.link"


class PageLinkAltered(HarnessError):
    """A link that Harness never made, or not like this."""

    code = "not_found"


class PageLinkExpired(HarnessError):
    """A link whose time is over."""

    code = "link_expired"


@dataclass(frozen=True, kw_only=True, slots=True)
class PageLink:
    """What a link opens. `label`: for whom it was made, which stays with what is done by it."""

    tenant: int
    what: Literal["task", "run"]
    public_id: uuid.UUID
    acts: bool
    label: str
    until_s: int = 0

    @property
    def actor(self) -> str:
        """Who acts by it, as the trace says."""
        return f"link for {self.label}"


def made(link: PageLink, *, now: datetime, life_s: float = LIFE_S) -> str:
    """Return the text of a link. Raises: Invalid naming the field."""
    if not 0 < life_s <= LIFE_MOST_S:
        raise Invalid(f"valid_s: must be above 0 and at most {LIFE_MOST_S:,.0f} seconds", field="valid_s")
    if not 0 < len(link.label) <= LABEL_MOST_CHARS or not link.label.isprintable():
        raise Invalid(f"for: must be printable text of 1 to {LABEL_MOST_CHARS} characters", field="for")
    until_s = int(now.timestamp() + life_s)
    told = [link.tenant, link.what, link.public_id.hex, int(link.acts), link.label, until_s]
    return signing.Signer(salt=_SALT).sign_object(told, compress=True)


def read(text: str, *, now: datetime) -> PageLink:
    """Return what a link opens. Raises: PageLinkAltered, PageLinkExpired."""
    try:
        tenant, what, public_id, acts, label, until_s = signing.Signer(salt=_SALT).unsign_object(text)
    except (signing.BadSignature, ValueError):
        raise PageLinkAltered("this link isn't one that was made here, or a part of it is missing") from None
    if now.timestamp() > until_s:
        raise PageLinkExpired("this link has expired: ask whoever sent it for another one")
    return PageLink(
        tenant=tenant, what=what, public_id=uuid.UUID(public_id), acts=bool(acts), label=label, until_s=until_s
    )


def address(text: str, link: PageLink, *, base: str = "") -> str:
    """Return the address of the page of a link. `base`: where the web process is reached, unless a setting says."""
    root: str = settings.HARNESS_PUBLIC_URL or base
    return f"{root.rstrip('/')}{PATH}{text}/{link.what}s/{link.public_id}/"
