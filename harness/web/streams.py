"""Who watches which tasks in this process: one hub on the event loop, however many streams are open.

State comes from PostgreSQL, in one statement a tenant every LOOK_S (sooner when a worker says that something happened);
output comes from Redis over one connection. Without Redis the streams go on with states alone. No thread and no
connection belongs to a single stream, and a slow client holds up nobody: each stream reads on from its own position.
"""

import asyncio
import contextlib
import signal
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from harness.policy.errors import Refused, Unavailable
from harness.policy.lifecycle import TERMINAL
from harness.store import queries
from harness.store.database import Connection
from harness.store.live import START, Chunk, LiveReader, Position
from harness.store.queries import EventView
from harness.telemetry import logs
from harness.web.service import Service

LOOK_S = 0.35  # between looks at the states of all tasks watched: a change is on its way within half a second
LOOK_LEAST_S = 0.05  # however often workers say that something happened
CONNECT_S = 1.5  # that a stream's beginning may wait for the first connection to Redis
AGAIN_S = 1.0  # between tries to reach Redis
STREAMS_MOST = 2000  # of one process
TENANT_STREAMS_MOST = 500

log = logs.get(__name__)


class TooManyStreams(Refused):
    """The tenant, or this process, has as many streams open as it may; close some, or try again later."""

    code = "over_quota"


@dataclass(slots=True, eq=False)
class Topic:
    """A task that somebody watches. `events`: since the first of them came; `chunks`: of the latest attempt.

    `early`: output that came before what was said before it was fetched.
    """

    task: uuid.UUID
    row: int
    tenant: int
    seq: int
    events: list[EventView] = field(default_factory=list)
    chunks: list[Chunk] = field(default_factory=list)
    wakes: set[asyncio.Event] = field(default_factory=set)
    filling: bool = False
    filled: bool = False
    early: list[Chunk] = field(default_factory=list)

    def hear(self, chunk: Chunk) -> None:
        """Add a piece of output that has just been shown."""
        if self.filled:
            self.take([chunk])
        else:
            self.early.append(chunk)

    def empty(self) -> None:
        """Output may have been missed: it must be fetched again, behind what is here."""
        self.filled = False
        self.early.clear()

    def take(self, chunks: list[Chunk]) -> None:
        """Add output, in order, each piece once; a later attempt's replaces an earlier one's."""
        for chunk in sorted(chunks, key=lambda one: one.position):
            last = self.chunks[-1].position if self.chunks else START
            if chunk.position <= last:
                continue
            if chunk.attempt != last[0]:
                self.chunks.clear()
            self.chunks.append(chunk)
        self.wake()

    def wake(self) -> None:
        """Let the streams look."""
        for event in self.wakes:
            event.set()

    @property
    def ended(self) -> bool:
        """Whether the task has ended, as far as is known."""
        return bool(self.events) and self.events[-1].to_state in TERMINAL


class Hub:
    """Keeps the topics of one process up to date while there are any."""

    def __init__(self, serving: Service, live_url: str) -> None:
        self._serving = serving
        self._url = live_url
        self._topics: dict[uuid.UUID, Topic] = {}
        self._open: defaultdict[int, int] = defaultdict(int)  # streams by tenant
        self._reader: LiveReader | None = None
        self._poke = asyncio.Event()
        self._jobs: list[asyncio.Task[None]] = []
        self._tried = asyncio.Event()  # Redis has answered, or not, for the first time
        self._leaving: set[asyncio.Task[None]] = set()
        self.live = False  # whether output arrives
        self.stopping = False

    def check_room(self, tenant: int) -> None:
        """Raises: TooManyStreams when one more would be too many."""
        if sum(self._open.values()) >= STREAMS_MOST or self._open[tenant] >= TENANT_STREAMS_MOST:
            raise TooManyStreams(
                f"{self._open[tenant]} streams of this tenant are open here: close some, or read the task instead",
                retry_after_s=5.0,
            )

    @contextlib.contextmanager
    def watching(self, task: uuid.UUID, row: int, tenant: int, seq: int) -> Iterator[tuple[Topic, asyncio.Event]]:
        """Watch a task whose events up to `seq` are known."""
        self._start()
        self._open[tenant] += 1
        topic = self._topics.get(task)
        if topic is None:
            topic = self._topics[task] = Topic(task=task, row=row, tenant=tenant, seq=seq)
        wake = asyncio.Event()
        wake.set()
        topic.wakes.add(wake)
        try:
            yield topic, wake
        finally:
            topic.wakes.discard(wake)
            self._open[tenant] -= 1
            if not topic.wakes and self._topics.get(task) is topic:
                del self._topics[task]
                if self._reader is not None and self.live and not self.stopping:
                    leaving = asyncio.create_task(self._leave(self._reader, task))
                    self._leaving.add(leaving)
                    leaving.add_done_callback(self._leaving.discard)

    async def fill(self, topic: Topic) -> None:
        """Listen to a topic's output, and fetch what was said before. Without Redis: nothing."""
        if self._reader is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._tried.wait(), CONNECT_S)
        if topic.filled or topic.filling or not self.live or self._reader is None:
            return
        topic.filling = True
        try:
            await self._reader.subscribe([str(topic.task)])
            said = await self._reader.history(str(topic.task))
            topic.filled = True
            topic.take(said + topic.early)
            topic.early.clear()
        except Unavailable:
            topic.empty()  # the job that listens notices too, and does it again
        finally:
            topic.filling = False

    async def rest(self, topic: Topic) -> None:
        """Fetch what of a topic's output has not come by itself."""
        if self._reader is not None and self.live:
            with contextlib.suppress(Unavailable):
                after: Position = topic.chunks[-1].position if topic.chunks else START
                topic.take(await self._reader.history(str(topic.task), after))

    async def output(self, task: uuid.UUID) -> list[Chunk]:
        """Return what a task has shown, of its latest attempt. Raises: Unavailable."""
        self._start()
        if self._reader is None:
            raise Unavailable("HARNESS_LIVE_URL names no Redis: output is not shown while tasks run")
        chunks = await self._reader.history(str(task))
        return [chunk for chunk in chunks if chunk.attempt == chunks[-1].attempt]

    def stop(self) -> None:
        """End all streams, so that the server need not wait for them: their clients come again, elsewhere or later."""
        self.stopping = True
        for topic in self._topics.values():
            topic.wake()
        for job in self._jobs:
            job.cancel()

    def _start(self) -> None:
        if self._jobs or self.stopping:
            return
        self._jobs = [asyncio.create_task(self._look_on())]
        if self._url:
            self._reader = LiveReader(self._url)
            self._jobs.append(asyncio.create_task(self._listen(self._reader)))
        _on_end(self.stop)

    async def _listen(self, reader: LiveReader) -> None:
        told = False
        while True:
            try:
                # A subscription of its own, so that there is a connection before anybody watches.
                await reader.subscribe(["-", *(str(task) for task in self._topics)])
                self.live = True
                self._tried.set()
                for topic in list(self._topics.values()):
                    topic.empty()
                    await self.fill(topic)
                    topic.wake()
                if told:
                    told = bool(log.info("live_output_back"))
                async for task, chunk in reader.news():
                    self._hear(task, chunk)
            except (Unavailable, ValueError) as error:  # a ValueError: what came isn't ours
                if not told:
                    log.warning("live_output_away", reason=str(error))
                told, self.live = True, False
                self._tried.set()
                for topic in self._topics.values():
                    topic.wake()
                await reader.drop()
                await asyncio.sleep(AGAIN_S)

    async def _leave(self, reader: LiveReader, task: uuid.UUID) -> None:
        if task not in self._topics:  # nobody has come in the meantime
            await reader.unsubscribe(str(task))

    def _hear(self, task: str, chunk: Chunk | None) -> None:
        topic = self._topics.get(uuid.UUID(task))
        if topic is None:
            return
        if chunk is not None:
            topic.hear(chunk)
        if chunk is None or chunk.number == 1:
            self._poke.set()

    async def _look_on(self) -> None:
        told = False
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._poke.wait(), LOOK_S)
            self._poke.clear()
            try:
                await self._look()
                told = False
            except Exception as error:  # noqa: BLE001  # whatever the database does, the streams go on
                if not told:
                    log.warning("states_not_read", reason=str(error))
                told = True
            await asyncio.sleep(LOOK_LEAST_S)

    async def _look(self) -> None:
        tenants: defaultdict[int, dict[int, int]] = defaultdict(dict)
        topics = {topic.row: topic for topic in self._topics.values()}
        for topic in topics.values():
            if not topic.ended:
                tenants[topic.tenant][topic.row] = topic.seq
        if not tenants:
            return

        def read(connection: Connection) -> dict[int, list[EventView]]:
            found: dict[int, list[EventView]] = {}
            for tenant, seen in tenants.items():
                with queries.as_tenant(connection, tenant):
                    found |= queries.news(connection, seen)
            return found

        for row, events in (await self._serving.on_thread(lambda: self._serving.with_connection(read))).items():
            topic = topics[row]
            fresh = [event for event in events if event.seq > topic.seq]
            if fresh:
                topic.events += fresh
                topic.seq = fresh[-1].seq
                topic.wake()


def _on_end(stop: Callable[[], None]) -> None:
    """Have `stop` called when the server is told to end: by itself it would wait for open streams first."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        before = signal.getsignal(number)
        if not callable(before):
            continue

        def told(signum: int, frame: Any, before: Callable[[int, Any], Any] = before) -> None:
            loop.call_soon_threadsafe(stop)
            before(signum, frame)

        with contextlib.suppress(ValueError):  # not the main thread: somebody else handles signals
            signal.signal(number, told)


_hub: Hub | None = None
_hub_loop: asyncio.AbstractEventLoop | None = None


def hub(serving: Service, live_url: str) -> Hub:
    """Return this process's hub, on the running loop."""
    global _hub, _hub_loop
    loop = asyncio.get_running_loop()
    if _hub is None or _hub_loop is not loop:
        _hub, _hub_loop = Hub(serving, live_url), loop
    return _hub
