"""How a page is answered: who looks is found, errors become pages, headers hold the browser to what is ours.

A view of a page is `async def view(request, viewer, ...)` under `@page`. It reads on a thread (`reading`) and returns
`answer(...)`; a button's view ends with `back(...)`. Without JavaScript a page reloads itself (`reload_s`); with it,
fragments (`Fragment`) come by a stream (harness.web.pages.live) and are put in place by their ids.
"""

import hashlib
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from functools import wraps
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.template.loader import render_to_string
from django.utils.html import format_html
from django.utils.safestring import SafeString

from harness.policy.errors import HarnessError
from harness.store import queries
from harness.store.database import Connection
from harness.telemetry import logs
from harness.web.pages import access, words
from harness.web.pages.access import NoLogin, NotYours, Viewer
from harness.web.pages.forms import TOO_OLD, StaleForm
from harness.web.service import service

T = TypeVar("T")
View = Callable[..., Coroutine[Any, Any, HttpResponseBase]]

HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Robots-Tag": "noindex",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
}
SAID = "said"  # the query parameter that says what a button did
_STATUS = {"link_expired": 410, "not_found": 404, "forbidden": 403, "conflict": 409, "invalid": 422, "unavailable": 503}
_TITLES = {
    403: "This isn’t open to you",
    404: "Nothing is here",
    405: "This page takes no such request",
    409: "That can’t be done now",
    410: "This link has expired",
    422: "Something is missing",
    429: "Too much at once",
    503: "The database doesn’t answer",
}

log = logs.get(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Fragment:
    """A part of a page that is renewed in place: its id, and the template that draws it from the page's facts.

    `role`: of the element around it (`status` is read out when it changes).
    """

    id: str
    template: str
    role: str = ""


def page(view: View) -> View:
    """Let a view be asked by whoever may look, and turn errors into pages."""

    @wraps(view)
    async def asked(request: HttpRequest, *args: Any, link: str | None = None, **kwargs: Any) -> HttpResponseBase:
        try:
            viewer = await access.of(request, link)
            answered = await view(request, viewer, *args, **kwargs)
        except NoLogin:
            return HttpResponseRedirect(f"/admin/login/?next={quote(request.path)}")
        except StaleForm:
            return problem(TOO_OLD, HTTPStatus.FORBIDDEN)
        except HarnessError as error:
            return problem(sentence(error.message), _STATUS.get(error.code, 500))
        for name, value in HEADERS.items():
            answered.headers.setdefault(name, value)
        return answered

    return asked


def operators(view: View) -> View:
    """As `page`, for people who see every tenant; others find nothing here."""

    @page
    @wraps(view)
    async def asked(request: HttpRequest, viewer: Viewer, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not viewer.is_operator:
            raise NotYours("these pages are for operators: your login is tied to one tenant")
        return await view(request, viewer, *args, **kwargs)

    return asked


async def reading(work: Callable[[Connection], T], *, tenant: int | None = None) -> T:
    """Read on a thread, under role `web`; held to a tenant, if one is named. Raises: Unavailable."""
    serving = service()

    def held(connection: Connection) -> T:
        if tenant is None:
            return work(connection)
        with queries.as_tenant(connection, tenant):
            return work(connection)

    return await serving.on_thread(lambda: serving.with_connection(held))


def answer(
    template: str,
    facts: Mapping[str, object],
    viewer: Viewer,
    *,
    title: str,
    fragments: Iterable[Fragment] = (),
    live: str = "",
    reload_s: int | None = None,
    said: str = "",
    status: int = HTTPStatus.OK,
) -> HttpResponse:
    """Return a page. `live`: where its stream is; `reload_s`: without JavaScript it comes again after so long.

    The template extends harness/pages/shell.html; each fragment stands in it as {{ live.<id> }}, with _ for -.
    `said`: what the button that led here did (a key of words.OUTCOMES; other text isn't shown).
    """
    given = {
        **facts,
        "viewer": viewer,
        "title": title,
        "live": drawn(fragments, facts),
        "live_path": live,
        "reload_s": reload_s,
        "said": words.OUTCOMES.get(said, ""),
    }
    return HttpResponse(render_to_string(template, given), status=status, headers=HEADERS)


def drawn(fragments: Iterable[Fragment], facts: Mapping[str, object]) -> dict[str, SafeString]:
    """Return fragments by id, each in the element that is renewed."""
    return {
        one.id.replace("-", "_"): format_html(
            '<div id="{}" data-live="{}"{}>{}</div>',
            one.id,
            digest(inner),
            format_html(' role="{}"', one.role) if one.role else "",
            inner,
        )
        for one, inner in ((one, inside(one, facts)) for one in fragments)
    }


def inside(fragment: Fragment, facts: Mapping[str, object]) -> SafeString:
    """Return what stands in a fragment."""
    return render_to_string(fragment.template, dict(facts))


def digest(text: str) -> str:
    """Return what tells one rendering from another."""
    return hashlib.blake2s(text.encode(), digest_size=6).hexdigest()


def back(path: str, said: str = "") -> HttpResponse:
    """Send whoever pressed a button to a page that says what it did."""
    return HttpResponseRedirect(f"{path}?{urlencode({SAID: said})}" if said else path, status=HTTPStatus.SEE_OTHER)


def problem(what: str, status: int) -> HttpResponse:
    """Return the page of something that went wrong."""
    facts = {"problem": what, "heading": _TITLES.get(status, "Something went wrong"), "title": "Not shown"}
    return HttpResponse(render_to_string("harness/pages/problem.html", facts), status=status, headers=HEADERS)


def sentence(message: str) -> str:
    """Return an error's message as a sentence."""
    return f"{message[:1].upper()}{message[1:]}" + ("" if message.endswith((".", "!", "?")) else ".")
