"""Forms that act once: each carries a signed token, and a token is taken once. A double click is one action."""

import uuid

from django import forms
from django.contrib import messages
from django.core import signing
from django.http import HttpRequest

from harness.store import people

FIELD = "_once"
LIFE_S = 24 * 3600  # how long a page with a form may stay open
TOO_OLD = "This page was too old. Nothing was done yet; send it again."
ACTED = "That form was sent already; it acted once."
_SALT = "harness.admin.once"


class Stale(Exception):
    """The form's token is missing, not of this form, or too old."""


def token(request: HttpRequest, purpose: str) -> str:
    """Return a token for one form of this person's. `purpose`: what the form does, and to what."""
    return signing.TimestampSigner(salt=_SALT).sign_object([uuid.uuid4().hex, request.user.pk, purpose])


def take(request: HttpRequest, purpose: str) -> bool:
    """Take the token that was sent; False when it was taken before. Outside a transaction.

    Raises: Stale.
    """
    try:
        value, user, meant = signing.TimestampSigner(salt=_SALT).unsign_object(
            request.POST.get(FIELD, ""), max_age=LIFE_S
        )
    except signing.BadSignature:
        raise Stale from None
    if user != request.user.pk or meant != purpose:
        raise Stale
    return people.take_form(uuid.UUID(value))


def answered(request: HttpRequest, purpose: str, form: forms.Form) -> bool | None:
    """Take the token of a valid form. False: it was sent before; None: too old. Either is told to the person."""
    try:
        fresh = take(request, purpose)
    except Stale:
        form.add_error(None, TOO_OLD)
        return None
    if not fresh:
        messages.info(request, ACTED)
    return fresh
