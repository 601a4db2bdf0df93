"""The page behind a signed link: what a task asks, and a form to decide it, for who has neither key nor login.

Looking decides nothing: a mail scanner may open the link. The form carries a token of its own, good for an hour and
for this link, and a question is answered once; whoever comes later reads by whom and when. The address is a secret, so
it is neither kept in a cache nor told to another site.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string

from harness.engine import approve
from harness.engine.approve import Link, LinkAltered, LinkExpired, links
from harness.engine.approve.answers import held, told
from harness.policy.approvals import NOTE_MOST_CHARS, waits
from harness.policy.errors import Conflict, HarnessError, Invalid, NotFound
from harness.store import approvals
from harness.store.approvals import Asked
from harness.store.database import Connection
from harness.web.service import service

NAME_MOST_CHARS = 60
HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Robots-Tag": "noindex",
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'",
}
NOWHERE = "This link leads nowhere: a part of it may be missing, or its task is gone. Nothing was decided by it."
EXPIRED = "This link has expired. Nothing was decided by it. Ask whoever sent it for another one."
LATE = "This page was open for too long. Nothing was decided; send it again."
_STATUS = {"link_expired": 410, "not_found": 404, "conflict": 409, "invalid": 422, "unavailable": 503}


async def decide(request: HttpRequest, link: str) -> HttpResponse:
    """Show what a link is about (GET), or decide it (POST)."""
    if request.method not in {"GET", "HEAD", "POST"}:
        return _page({"problem": "This page takes GET and POST."}, HTTPStatus.METHOD_NOT_ALLOWED)
    serving = service()
    sent: Mapping[str, str] | None = request.POST.dict() if request.method == "POST" else None

    def work() -> HttpResponse:
        now = datetime.now(UTC)
        return serving.with_connection(lambda connection: _answer(connection, link, sent, now))

    try:
        return await serving.on_thread(work)
    except (LinkAltered, NotFound):
        return _page({"problem": NOWHERE}, HTTPStatus.NOT_FOUND)
    except LinkExpired:
        return _page({"problem": EXPIRED}, HTTPStatus.GONE)
    except HarnessError as error:
        return _page({"problem": _sentence(error.message)}, _STATUS.get(error.code, 500))


def _answer(connection: Connection, text: str, sent: Mapping[str, str] | None, now: datetime) -> HttpResponse:
    link = links.read(text, now=now)
    with held(connection, link.tenant):
        asked = approvals.one(connection, link.approval)
    if asked is None:
        raise NotFound("the question is gone")
    if sent is None:
        return _shown(asked, link, text, now)
    if not links.check_form(text, sent.get("token", ""), now=now):
        return _shown(asked, link, text, now, wrong=LATE, status=HTTPStatus.FORBIDDEN)
    name = sent.get("name", "").strip()
    if len(name) > NAME_MOST_CHARS or not name.isprintable():
        return _shown(asked, link, text, now, wrong=f"Your name: at most {NAME_MOST_CHARS} characters.", status=422)
    given: dict[str, Any] = {
        "tenant": link.tenant,
        "actor": f"{link.actor}: {name}" if name else link.actor,
        "reason": sent.get("reason", ""),
        "only": (link.approval, link.asks),
    }
    try:
        if sent.get("verdict") == "deny":
            approve.deny(connection, asked.task_id, **given)
        elif sent.get("verdict") == "approve":
            approve.approve(connection, asked.task_id, choice=sent.get("choice") or None, **given)
        else:
            return _shown(asked, link, text, now, wrong="Choose to approve or to deny.", status=422)
    except Invalid as error:
        return _shown(asked, link, text, now, wrong=_sentence(error.message), status=422)
    except Conflict:
        with held(connection, link.tenant):
            asked = approvals.one(connection, link.approval)
        if asked is None:
            raise NotFound("the question is gone") from None
        return _shown(asked, link, text, now, status=HTTPStatus.CONFLICT)
    with held(connection, link.tenant):
        after = approvals.one(connection, link.approval)
    return _shown(after or asked, link, text, now, thanks=True)


def _shown(
    asked: Asked,
    link: Link,
    text: str,
    now: datetime,
    *,
    wrong: str = "",
    thanks: bool = False,
    status: int = HTTPStatus.OK,
) -> HttpResponse:
    """Return the page of a question as it stands."""
    one = asked.approval
    facts: dict[str, object] = {"asked": asked, "question": one, "wrong": wrong, "thanks": thanks}
    if one.verdict is not None:
        facts["over"] = f"It was {told(one, now)}."
    elif not waits(asked.state, is_open=one.open):
        facts["over"] = f"It doesn't wait for a decision now: its task is {asked.state.replace('_', ' ')}."
    elif one.asks != link.asks:
        facts["over"] = "It was asked anew: take the newer link."
    else:
        facts |= {
            "token": links.form_token(text, now=now),
            "note_most": NOTE_MOST_CHARS,
            "name_most": NAME_MOST_CHARS,
            "only_choice": one.choices[0] if len(one.choices) == 1 else None,
        }
    return _page(facts, status)


def _page(facts: Mapping[str, object], status: int = HTTPStatus.OK) -> HttpResponse:
    return HttpResponse(render_to_string("harness/decide.html", dict(facts)), status=status, headers=HEADERS)


def _sentence(message: str) -> str:
    return f"{message[:1].upper()}{message[1:]}."
