"""A task's output and states while it runs: as server-sent events, and read at once.

Guaranteed: every state change, once and in order, and `end` last. Best effort: output; it may be late or missing when
Redis is away, and `offset` shows what is missing. A later attempt's output replaces an earlier one's (`attempt` rises).
An event's id is `<state seq>.<attempt>-<chunk>`; sent back as Last-Event-ID, the stream goes on behind it.
"""

import asyncio
import json
import re
import time
import uuid
from bisect import bisect_right
from collections.abc import AsyncIterator

from django.conf import settings
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from ninja import Router
from pydantic import BaseModel, Field

from harness.policy.errors import Invalid, Unavailable
from harness.policy.lifecycle import TERMINAL
from harness.store import queries
from harness.store.database import Connection
from harness.store.live import START, Position
from harness.store.queries import EventView
from harness.web.api import answers
from harness.web.api.auth import READ, caller_of
from harness.web.api.schemas import Problem
from harness.web.service import service
from harness.web.streams import Hub, Topic, hub

router = Router(tags=["tasks"])

HEARTBEAT_S = 15.0  # less than the patience of proxies
STREAM_MOST_S = 900.0  # then the client comes again, with a key that is looked at again
RETRY_MS = 1000
PAGE = 1000  # events of a task, read at once
_ID = re.compile(r"(\d{1,10})\.(\d{1,10})-(\d{1,10})")


class OutputOut(BaseModel):
    """What a task has shown so far, of its latest attempt that showed anything."""

    task_id: uuid.UUID
    state: str
    available: bool = Field(description="false: live output can't be reached now; the task itself is not affected")
    attempt: int | None
    text: str
    missing_chars: int = Field(description="characters before and within `text` that were lost on the way")
    cut: bool = Field(description="the task showed more than is shown live; its result has all")


@router.get(
    "/{uuid:task_id}/output",
    auth=READ,
    response={200: OutputOut, (401, 403, 404, 503): Problem},
    summary="Read a task's output so far",
)
async def output(request: HttpRequest, task_id: uuid.UUID) -> HttpResponse:
    """Read what a task has shown while it runs, and for 15 minutes after. Its result is at /api/v1/tasks/{id}."""
    caller = caller_of(request)
    serving = service()

    def look(connection: Connection) -> str:
        with queries.as_tenant(connection, caller.tenant.id):
            return queries.the_task(connection, task_id).state

    state = await serving.on_thread(lambda: serving.with_connection(look))
    try:
        chunks = await hub(serving, settings.HARNESS_LIVE_URL).output(task_id)
        available = True
    except Unavailable:
        chunks, available = [], False
    text = "".join(chunk.text for chunk in chunks)
    whole = chunks[-1].offset + len(chunks[-1].text) if chunks else 0
    return answers.answer(
        OutputOut(
            task_id=task_id,
            state=state,
            available=available,
            attempt=chunks[-1].attempt if chunks else None,
            text=text,
            missing_chars=whole - len(text),
            cut=bool(chunks) and chunks[-1].cut,
        )
    )


@router.get(
    "/{uuid:task_id}/stream",
    auth=READ,
    response={200: None, (401, 403, 404, 422, 429, 503): Problem},
    summary="Watch a task",
    openapi_extra={
        "parameters": [
            {
                "name": "Last-Event-ID",
                "in": "header",
                "required": False,
                "description": "the id of the last event that was received: the stream goes on behind it",
                "schema": {"type": "string"},
            }
        ],
        "responses": {
            200: {
                "description": "Server-sent events: `state`, `output`, `live`, and `end` as the last.",
                "content": {"text/event-stream": {"schema": {"type": "string"}}},
            }
        },
    },
)
async def stream(request: HttpRequest, task_id: uuid.UUID) -> HttpResponseBase:
    """Watch a task: its state changes and its output as they come, until it has ended."""
    caller = caller_of(request)
    serving = service()
    seq, position = last_place(request.headers.get("Last-Event-ID"))

    def look(connection: Connection) -> tuple[queries.TaskView, list[EventView]]:
        with queries.as_tenant(connection, caller.tenant.id):
            task = queries.the_task(connection, task_id)
            events: list[EventView] = []
            while page := queries.trace(connection, task.id, after=events[-1].seq if events else seq, most=PAGE):
                events += page
            return task, events

    task, before = await serving.on_thread(lambda: serving.with_connection(look))
    watched = hub(serving, settings.HARNESS_LIVE_URL)
    watched.check_room(caller.tenant.id)

    async def frames() -> AsyncIterator[bytes]:
        with watched.watching(task_id, task.id, caller.tenant.id, before[-1].seq if before else seq) as (topic, wake):
            watch = _Watch(watched, topic, wake, seq=seq, position=position, before=before, state=task.state)
            async for frame in watch.frames():
                yield frame

    response = StreamingHttpResponse(frames(), content_type="text/event-stream")
    response["Cache-Control"] = "no-store"
    response["X-Accel-Buffering"] = "no"
    return response


class _Watch:
    """One client's stream: where it stands, and what it is sent next."""

    def __init__(
        self,
        watched: Hub,
        topic: Topic,
        wake: asyncio.Event,
        *,
        seq: int,
        position: Position,
        before: list[EventView],
        state: str,
    ) -> None:
        self._hub = watched
        self._topic = topic
        self._wake = wake
        self._seq = seq
        self._position = position
        self._before = before
        self._state = state
        self._live = True

    async def frames(self) -> AsyncIterator[bytes]:
        """Yield frames until the task has ended, the time is up, or the process ends."""
        until_s = time.monotonic() + STREAM_MOST_S
        yield f"retry: {RETRY_MS}\n\n".encode()
        await self._hub.fill(self._topic)
        over = self._state in TERMINAL
        while True:
            self._wake.clear()
            # Topic first: what it knows of states can only be newer than the output that is read after it.
            events = [event for event in (*self._before, *self._topic.events) if event.seq > self._seq]
            if events and events[-1].to_state in TERMINAL:
                over = True
            if over:
                await self._hub.rest(self._topic)
            if self._hub.live != self._live:
                self._live = self._hub.live
                yield self._frame("live", {"available": self._live})
            for frame in self._outputs():
                yield frame
            for event in events:
                self._seq, self._state = event.seq, event.to_state
                yield self._frame("state", answers.event_out(event).model_dump(mode="json"))
            self._before = []
            if over:
                yield self._frame("end", {"state": self._state})
                return
            if self._hub.stopping or time.monotonic() >= until_s:
                yield b": come again\n\n"
                return
            try:
                await asyncio.wait_for(self._wake.wait(), HEARTBEAT_S)
            except TimeoutError:
                yield b": beat\n\n"
                await self._hub.fill(self._topic)

    def _outputs(self) -> list[bytes]:
        frames = []
        chunks = self._topic.chunks
        for chunk in chunks[bisect_right(chunks, self._position, key=lambda one: one.position) :]:
            self._position = chunk.position
            said = {"attempt": chunk.attempt, "offset": chunk.offset, "text": chunk.text, "cut": chunk.cut}
            frames.append(self._frame("output", said))
        return frames

    def _frame(self, name: str, data: object) -> bytes:
        place = f"{self._seq}.{self._position[0]}-{self._position[1]}"
        return f"id: {place}\nevent: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


def last_place(text: str | None) -> tuple[int, Position]:
    """Return where a stream ended whose last event had this id. Raises: Invalid."""
    if not text:
        return 0, START
    found = _ID.fullmatch(text)
    numbers = tuple(int(part) for part in found.groups()) if found else ()
    if not numbers or max(numbers) >= 2**31:
        raise Invalid("Last-Event-ID: not the id of an event of this stream", field="Last-Event-ID")
    return numbers[0], (numbers[1], numbers[2])
