"""The stream that keeps a page up to date: fragments, each sent when it has changed, in server-sent events.

Each look draws the page's fragments on a thread and sends those that differ from what this client has. Looks come when
`wake` is set, and every so often, but at most ALONE_A_SECOND of them a second in a process by the clock alone. A client
that comes again gets what changed meanwhile: it compares digests, so nothing moves that is as it was.

Events: `swap` {id: html}, `text` (more of a growing text), `title`, `end` (nothing will change any more; the page
reloads nothing). An event's id is the caller's `place`, sent back as Last-Event-ID or `?after=`.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field

from django.http import HttpRequest, StreamingHttpResponse

from harness.policy.errors import HarnessError, Unavailable
from harness.telemetry import logs
from harness.web.pages.shell import Fragment, digest, inside

BEAT_S = 5.0  # the page says that it isn't live when nothing has come for twice as long
MOST_S = 900.0  # then the client comes again, and who it is is looked up anew
ALONE_A_SECOND = 20.0
LEAST_S = 0.25  # between two looks of one page, whatever wakes it
RETRY_MS = 1000

log = logs.get(__name__)
_open: set[object] = set()


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """A page as it stands: what its fragments are drawn from, its title, and whether all is over."""

    facts: Mapping[str, object]
    title: str = ""
    over: bool = False


@dataclass(slots=True)
class Sent:
    """What a client has."""

    digests: dict[str, str] = field(default_factory=dict)
    title: str = ""


def stream(
    request: HttpRequest, look: Callable[[], Awaitable[Look]], fragments: Iterable[Fragment], *, every_s: float
) -> StreamingHttpResponse:
    """Return the stream of a page that is looked at by the clock."""
    return answered(frames(look, tuple(fragments), every_s=every_s))


def answered(frames: AsyncIterator[bytes]) -> StreamingHttpResponse:
    """Return frames as an answer."""
    response = StreamingHttpResponse(frames, content_type="text/event-stream")
    response["Cache-Control"] = "no-store"
    response["X-Accel-Buffering"] = "no"
    return response


def last_id(request: HttpRequest) -> str:
    """Return where the client's last stream ended, if it says."""
    return request.headers.get("Last-Event-ID") or request.GET.get("after", "")


async def frames(
    look: Callable[[], Awaitable[Look]],
    fragments: tuple[Fragment, ...],
    *,
    every_s: float,
    wake: asyncio.Event | None = None,
    place: Callable[[], str] = lambda: "0",
    more: Callable[[], Awaitable[list[tuple[str, object]]]] | None = None,
    stopping: Callable[[], bool] = lambda: False,
) -> AsyncIterator[bytes]:
    """Yield a page's events. `wake`: a look is due; `more`: other events that are due, asked after each look."""
    wake = wake or asyncio.Event()
    until_s = time.monotonic() + MOST_S
    sent = Sent()
    me = object()
    _open.add(me)
    try:
        yield f"retry: {RETRY_MS}\n\n".encode()
        while not stopping() and time.monotonic() < until_s:
            wake.clear()
            began_s = time.monotonic()
            try:
                found = await look()
            except Unavailable:
                found = None  # the beats stop, so the page says that it isn't live
            except HarnessError:
                yield _frame("end", {"gone": True}, place())
                return
            for name, data in await more() if more else ():
                yield _frame(name, data, place())
            if found is not None:
                for name, data in _changes(found, fragments, sent):
                    yield _frame(name, data, place())
                if found.over:
                    yield _frame("end", {}, place())
                    return
                yield b"event: beat\ndata: {}\n\n"
            await asyncio.sleep(max(0.0, LEAST_S - (time.monotonic() - began_s)))
            again_s = began_s + max(every_s, len(_open) / ALONE_A_SECOND)
            while not wake.is_set() and (left_s := again_s - time.monotonic()) > 0 and not stopping():
                try:
                    await asyncio.wait_for(wake.wait(), min(left_s, BEAT_S))
                except TimeoutError:
                    if found is not None:
                        yield b"event: beat\ndata: {}\n\n"
    finally:
        _open.discard(me)


def _changes(found: Look, fragments: tuple[Fragment, ...], sent: Sent) -> list[tuple[str, object]]:
    changed: dict[str, list[str]] = {}
    for one in fragments:
        inner = inside(one, found.facts)
        mark = digest(inner)
        if sent.digests.get(one.id) != mark:
            sent.digests[one.id] = mark
            changed[one.id] = [mark, inner]
    said: list[tuple[str, object]] = [("swap", changed)] if changed else []
    if found.title and found.title != sent.title:
        sent.title = found.title
        said.append(("title", found.title))
    return said


def _frame(name: str, data: object, place: str) -> bytes:
    return f"id: {place}\nevent: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()
