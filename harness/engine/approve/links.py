"""Signed links to one asking of one question: whoever has one may decide it, once, until it expires.

A link is a text of its own, stored nowhere. It is good for one asking: when the question was decided, or is asked anew,
it leads to a page that says so. Signed with SECRET_KEY; a form of the page carries a token of its own, for an hour.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from django.conf import settings
from django.core import signing

from harness.policy.errors import HarnessError, Invalid

LIFE_S: Final = 7 * 86_400.0  # of a link, unless its maker says
LIFE_MOST_S: Final = 90 * 86_400.0
FORM_LIFE_S: Final = 3_600.0
LABEL_MOST_CHARS: Final = 60
PATH: Final = "/decide/"
_LINK, _FORM = "harness.approval.link", "harness.approval.form"


class LinkAltered(HarnessError):
    """A link that Harness never made, or not like this."""

    code = "not_found"


class LinkExpired(HarnessError):
    """A link whose time is over."""

    code = "link_expired"


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """What a link is good for. `label`: for whom it was made, which stays with the decision."""

    approval: int
    asks: int
    tenant: int
    label: str

    @property
    def actor(self) -> str:
        """Who decides by it, as the trace says."""
        return f"link for {self.label}"


def made(link: Link, *, now: datetime, life_s: float = LIFE_S) -> str:
    """Return the text of a link. Raises: Invalid naming the field."""
    if not 0 < life_s <= LIFE_MOST_S:
        raise Invalid(f"valid_s: must be above 0 and at most {LIFE_MOST_S:,.0f} seconds", field="valid_s")
    if not 0 < len(link.label) <= LABEL_MOST_CHARS or not link.label.isprintable():
        raise Invalid(f"for: must be printable text of 1 to {LABEL_MOST_CHARS} characters", field="for")
    until_s = int(now.timestamp() + life_s)
    return signing.Signer(salt=_LINK).sign_object([link.approval, link.asks, link.tenant, link.label, until_s])


def read(text: str, *, now: datetime) -> Link:
    """Return what a link is good for. Raises: LinkAltered, LinkExpired."""
    try:
        approval, asks, tenant, label, until_s = signing.Signer(salt=_LINK).unsign_object(text)
    except (signing.BadSignature, ValueError):
        raise LinkAltered("this link isn't one that was made here, or a part of it is missing") from None
    if now.timestamp() > until_s:
        raise LinkExpired("this link has expired: ask for another one, or decide in the admin or by the API")
    return Link(approval=approval, asks=asks, tenant=tenant, label=label)


def form_token(text: str, *, now: datetime) -> str:
    """Return the token of the form on a link's page."""
    return signing.Signer(salt=_FORM).sign_object([text.rpartition(":")[2], int(now.timestamp() + FORM_LIFE_S)])


def check_form(text: str, token: str, *, now: datetime) -> bool:
    """Whether a form was sent from the page of this link, within its hour."""
    try:
        of, until_s = signing.Signer(salt=_FORM).unsign_object(token)
    except (signing.BadSignature, ValueError):
        return False
    return bool(of == text.rpartition(":")[2] and now.timestamp() <= until_s)


def address(text: str, *, base: str = "") -> str:
    """Return the address of a link. `base`: where the web process is reached, unless HARNESS_PUBLIC_URL says."""
    root: str = settings.HARNESS_PUBLIC_URL or base
    return f"{root.rstrip('/')}{PATH}{text}"
