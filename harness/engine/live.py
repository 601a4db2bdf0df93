"""What a running task says before it ends: taken from the kind at once, sent by one thread a process, every COALESCE_S.

The kind never waits for Redis. What one attempt says is bounded (OUTPUT_BYTES), and so is what waits here when Redis is
away: the rest of that attempt's output is then late, or missing when the attempt ends first.
"""

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from harness.kinds import models
from harness.policy.errors import Unavailable
from harness.store.live import Chunk, LiveWriter
from harness.telemetry import logs

COALESCE_S = 0.050  # a kind's many small pieces become one chunk in this time
OUTPUT_BYTES = 128 * 1024  # of one attempt; a longer answer is in its result
LAST_WAIT_S = 0.25  # that an attempt's end may wait for its last chunk, so that it comes before the end itself
AWAY_S = 1.0  # between tries while Redis is away
LATE_S = 10.0  # an ended attempt's output is sent no later than this

log = logs.get(__name__)


@dataclass(slots=True, eq=False)
class Output:
    """What one attempt has said. Guarded by the lock of its `Live`."""

    task: str
    attempt: int
    pieces: list[str] = field(default_factory=list)
    taken_bytes: int = 0
    cut: bool = False
    cut_told: bool = False
    offset: int = 0
    number: int = 0
    unsent: Chunk | None = None  # sent, perhaps: it must go again as it was
    ended_s: float | None = None
    sent: threading.Event = field(default_factory=threading.Event)

    def has_more(self) -> bool:
        """Whether something waits to be sent."""
        return bool(self.pieces or self.unsent or self.cut != self.cut_told)


class Live:
    """The output of all that runs in one process. Connects with the first word said."""

    def __init__(self, url: str, *, may_send: Callable[[], bool]) -> None:
        self._url = url
        self._may_send = may_send
        self._lock = threading.Lock()
        self._outputs: list[Output] = []
        self._looks: set[str] = set()
        self._due = threading.Event()
        self._now = threading.Event()
        self._away = False
        self._thread: threading.Thread | None = None

    def open(self, task: str, attempt: int) -> Output:
        """Begin an attempt's output. `attempt`: its release_no, so that a later one supersedes it."""
        output = Output(task, attempt)
        with self._lock:
            self._outputs.append(output)
        return output

    def emit(self, output: Output, text: str) -> None:
        """Take a piece of text; beyond OUTPUT_BYTES it is dropped, and the last chunk says so. Never waits."""
        text = text.encode("utf-8", "replace").decode()  # half a surrogate pair has no bytes
        with self._lock:
            if output.cut or not text or output.ended_s is not None or not self._url:
                return
            room = OUTPUT_BYTES - output.taken_bytes
            size = len(text.encode())
            if size > room:
                text, output.cut = text.encode()[:room].decode("utf-8", "ignore"), True
            output.taken_bytes += size
            if text:
                output.pieces.append(text)
            self._start()
        self._due.set()

    def end(self, output: Output) -> None:
        """The attempt is over: send the rest now, and wait a moment for that while Redis answers."""
        with self._lock:
            output.ended_s = time.monotonic()
            waits = output.has_more()
            if not waits:
                self._outputs.remove(output)
        if waits:
            self._now.set()
            self._due.set()
            if not self._away:
                output.sent.wait(LAST_WAIT_S)

    def look(self, tasks: Iterable[str]) -> None:
        """Tell those who watch these tasks that their state has changed (they would find out by themselves, later)."""
        with self._lock:
            self._looks.update(tasks)
            self._start()
        self._now.set()
        self._due.set()

    def _start(self) -> None:
        if self._thread is None and self._url:
            self._thread = threading.Thread(target=self._loop, name="live", daemon=True)
            self._thread.start()

    def _loop(self) -> None:
        writer = LiveWriter(self._url)
        while True:
            self._due.wait()
            self._now.wait(COALESCE_S)
            self._due.clear()
            self._now.clear()
            chunks, looks = self._collect()
            try:
                writer.send([chunk for _, chunk in chunks], looks)
            except Unavailable as error:
                if not self._away:
                    log.warning("live_output_away", reason=error.message)
                self._away = True
                self._forget_late()
                time.sleep(AWAY_S)
                self._due.set()
                continue
            if self._away:
                log.info("live_output_back")
            self._away = False
            self._sent([output for output, _ in chunks])

    def _collect(self) -> tuple[list[tuple[Output, Chunk]], set[str]]:
        with self._lock:
            looks, self._looks = self._looks, set()
            found: list[tuple[Output, Chunk]] = []
            if not self._may_send():  # fenced: others may be speaking for these tasks now
                return found, set()
            for output in self._outputs:
                if output.unsent is None and output.has_more():
                    text = models.redact("".join(output.pieces))
                    output.pieces.clear()
                    output.number += 1
                    output.unsent = Chunk(output.task, output.attempt, output.number, output.offset, text, output.cut)
                    output.offset += len(text)
                    output.cut_told = output.cut
                if output.unsent is not None:
                    found.append((output, output.unsent))
            return found, looks

    def _sent(self, outputs: Iterable[Output]) -> None:
        with self._lock:
            for output in outputs:
                output.unsent = None
                if output.has_more():
                    self._due.set()
                elif output.ended_s is not None:
                    self._outputs.remove(output)
                    output.sent.set()

    def _forget_late(self) -> None:
        now_s = time.monotonic()
        with self._lock:
            self._outputs = [o for o in self._outputs if o.ended_s is None or now_s - o.ended_s < LATE_S]
