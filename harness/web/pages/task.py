"""The page of one task: when, why, what you can do; live, and whole without JavaScript."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

from asgiref.sync import sync_to_async
from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from harness.policy.errors import Conflict, Unavailable
from harness.store import queries, staff
from harness.store.database import Connection
from harness.store.live import Chunk, Position
from harness.web.api.stream import last_place
from harness.web.pages import acting, forms, live, opening, seen, shell, task_facts, telling
from harness.web.pages.access import NotYours, Viewer
from harness.web.pages.live import Look
from harness.web.pages.seen import Seen
from harness.web.pages.shell import Fragment, page
from harness.web.service import service
from harness.web.streams import Topic, hub

T = TypeVar("T")

RELOAD_S = {
    "running": 10,
    "queued": 15,
    "failed_retryable": 15,
    "paused": 30,
}  # none where somebody types, or at the end
EVERY_S = {"running": 5.0, "queued": 10.0}
ELSE_EVERY_S = 15.0
NOTE_MOST_CHARS = 500
FRAGMENTS = tuple(
    Fragment(id=f"task-{name}", template=f"harness/pages/task_{name}.html", role="status" if name == "state" else "")
    for name in ("state", "ask", "answers", "note", "result", "sofar", "steps", "children", "trace", "facts")
)


@page
async def show(request: HttpRequest, viewer: Viewer, task_id: uuid.UUID) -> HttpResponseBase:
    """The page."""
    if request.method not in {"GET", "HEAD"}:
        return shell.problem("This page takes GET.", 405)
    tenant = await opening.tenant_of_task(viewer, task_id)
    found = await _look(viewer, task_id, tenant)
    facts = task_facts.of(found, viewer)
    return shell.answer(
        "harness/pages/task.html",
        {**facts, "output": await _output(found), "follows": not found.over},
        viewer,
        title=telling.title(found),
        fragments=FRAGMENTS,
        live="" if found.over else f"{viewer.task_path(task_id)}live",
        reload_s=None if found.undecided else RELOAD_S.get(found.state),
        said=request.GET.get(shell.SAID, ""),
    )


@page
async def stream(request: HttpRequest, viewer: Viewer, task_id: uuid.UUID) -> HttpResponseBase:
    """The page's stream: fragments as they change, output as it comes. Raises: TooManyStreams."""
    tenant = await opening.tenant_of_task(viewer, task_id)
    _, position = last_place(live.last_id(request))
    first = await _look(viewer, task_id, tenant)
    watched = hub(service(), settings.HARNESS_LIVE_URL)
    watched.check_room(tenant)
    newest = [first.seq]

    async def frames() -> AsyncIterator[bytes]:
        with watched.watching(task_id, first.task.id, tenant, first.seq) as (topic, wake):
            output = _Output(topic, position)

            async def look() -> Look:
                found = await _look(viewer, task_id, tenant)
                newest[0] = found.seq
                if found.over:
                    await watched.rest(topic)
                return Look(facts=task_facts.of(found, viewer), title=telling.title(found), over=found.over)

            await watched.fill(topic)
            async for frame in live.frames(
                look,
                FRAGMENTS,
                every_s=EVERY_S.get(first.task.state, ELSE_EVERY_S),
                wake=wake,
                place=lambda: f"{newest[0]}.{output.position[0]}-{output.position[1]}",
                more=output.more,
                stopping=lambda: watched.stopping,
            ):
                yield frame

    return live.answered(frames())


@page
async def press(request: HttpRequest, viewer: Viewer, task_id: uuid.UUID, verb: str) -> HttpResponseBase:
    """Do what a button says, once."""
    if request.method != "POST":
        return shell.problem("A button is pressed, not opened.", 405)
    if not viewer.may_act:
        raise NotYours("you may look at this task, and not act on it")
    if verb == "decide":
        return await _decide(request, viewer, task_id)
    now = datetime.now(UTC)
    tenant = await opening.tenant_of_task(viewer, task_id)
    await _may_open(viewer, task_id, tenant)
    taken = await forms.take(viewer, request, begins=acting.purpose(verb, task_id, ""), now=now)
    if taken is None:
        return shell.back(viewer.task_path(task_id), "acted")
    reason = request.POST.get("reason", "")[:NOTE_MOST_CHARS]
    act = acting.verb_on(
        verb, task_id, viewer=viewer, tenant=tenant, reason=reason, key=f"page-{taken}", serving=service()
    )
    try:
        outcome, at = await _acting(viewer, act)
    except Unavailable:
        await forms.give_back(taken)
        raise
    return shell.back(viewer.task_path(at), outcome)


async def _decide(request: HttpRequest, viewer: Viewer, task_id: uuid.UUID) -> HttpResponseBase:
    tenant = await opening.tenant_of_task(viewer, task_id)
    found = await _look(viewer, task_id, tenant)
    asked = found.question
    if asked is None:
        raise Conflict("this task asks nothing")
    begins = acting.purpose("decide", task_id, f"{asked.id} {asked.asks}")
    taken = await forms.take(viewer, request, begins=begins, now=datetime.now(UTC))
    if taken is None:
        return shell.back(viewer.task_path(task_id), "acted")
    denied = request.POST.get("verdict") == "deny"
    choice = None if denied else request.POST.get("choice", "")
    reason = request.POST.get("reason", "").strip()
    act = partial(acting.decide, task=task_id, viewer=viewer, choice=choice, reason=reason, only=(asked.id, asked.asks))
    try:
        outcome = await _acting(viewer, act)
    except Exception:
        await forms.give_back(taken)  # nothing is decided: whoever forgot to choose may press again
        raise
    return shell.back(viewer.task_path(task_id), outcome)


class _Output:
    """What of a topic's output a client has."""

    def __init__(self, topic: Topic, position: Position) -> None:
        self._topic = topic
        self.position = position

    async def more(self) -> list[tuple[str, object]]:
        """Return what has come since."""
        fresh = [chunk for chunk in self._topic.chunks if chunk.position > self.position]
        if fresh:
            self.position = fresh[-1].position
        return [
            ("text", {"attempt": one.attempt, "offset": one.offset, "text": one.text, "cut": one.cut}) for one in fresh
        ]


async def _look(viewer: Viewer, task_id: uuid.UUID, tenant: int) -> Seen:
    serving = service()

    def read(connection: Connection) -> Seen:
        with queries.as_tenant(connection, tenant) as now:
            return seen.look(connection, viewer, task_id, tenant=tenant, now=now)

    return await serving.on_thread(lambda: serving.with_connection(read))


async def _may_open(viewer: Viewer, task_id: uuid.UUID, tenant: int) -> None:
    await shell.reading(lambda connection: opening.opened(connection, viewer, task_id), tenant=tenant)


async def _acting(viewer: Viewer, act: Callable[[Connection], T]) -> T:
    """Act as the tenant under role `web`, or as an operator under role `staff`."""
    serving = service()
    if viewer.tenant is not None:
        return await serving.on_thread(lambda: serving.with_connection(act))

    def as_operator() -> T:
        with staff.own_connection(None) as connection:
            return act(connection)

    return await sync_to_async(as_operator, thread_sensitive=False)()


async def _output(found: Seen) -> Mapping[str, object] | None:
    """What it has shown so far, of its latest attempt; nothing where that can't be reached, or has gone."""
    if found.over and found.task.output is not None:
        return None
    try:
        async with asyncio.timeout(2.0):
            chunks: list[Chunk] = await hub(service(), settings.HARNESS_LIVE_URL).output(found.task.public_id)
    except (Unavailable, TimeoutError):
        chunks = []
    last = chunks[-1] if chunks else None
    return {
        "text": "".join(chunk.text for chunk in chunks),
        "attempt": last.attempt if last else 0,
        "end": last.offset + len(last.text) if last else 0,
        "first": chunks[0].offset if chunks else 0,
    }
