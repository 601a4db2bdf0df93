"""One run of code in a sandbox: start it, feed it, listen, watch its limits, and end all of it, whatever happens.

    1 the sandbox is made, its launcher says so   2 the files go in, the code runs, what it prints is kept
    3 it ends, or a limit or a wish ends it: the first process of its namespace is killed, and the kernel kills every
    other one with it

Ends only when every process of the sandbox is gone; with this process the sandbox goes too (bwrap --die-with-parent).
"""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Final, Literal

from harness.kinds.errors import Permanent, Transient
from harness.kinds.sandbox import cgroup, place, seccomp, usage
from harness.kinds.sandbox.answer import Answer, Forged, Produced
from harness.kinds.sandbox.command import command, started
from harness.kinds.sandbox.limits import MIB, Limits

LOOK_EVERY_S: Final = 0.1
MADE_S: Final = 20.0  # to make the sandbox; 50 ms on an idle machine
GONE_S: Final = 10.0
BLOCK_BYTES: Final = 256 * 1024
INFO_BYTES: Final = 64 * 1024
_LAUNCHER: Final = Path(__file__).with_name("launcher.py").read_text(encoding="utf-8")

Ended = Literal["exit", "time", "cpu", "memory", "output", "files", "given", "broken"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Given:
    """A file for the code, in its working folder. `bytes`: how many are read from `content`."""

    name: str
    content: BinaryIO
    bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Finished:
    """How the code ended. `ended` "exit": by itself with `exit_code` (below 0: by that signal); else what ended it.

    `reason`: a sentence, '' when it ended by itself. `left_out`: files that weren't taken, each with why.
    Close it: it holds `produced`.
    """

    ended: Ended
    exit_code: int | None
    reason: str
    stdout: str
    stderr: str
    took_s: float
    produced: tuple[Produced, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()

    def close(self) -> None:
        """Let the files go."""
        for one in self.produced:
            one.content.close()


def run(
    code: str,
    *,
    given: Sequence[Given] = (),
    limits: Limits | None = None,
    look: Callable[[], None] = lambda: None,
) -> Finished:
    """Run Python code and return how it ended. `look` is called about ten times a second, and may raise.

    Raises: Permanent where no sandbox can be made (why, and what to do); Transient; whatever `look` raises.
    """
    limits = limits or Limits()
    if why := place.lack():
        raise Permanent(f"the sandbox can't be used: {why}")
    found = place.find()
    assert isinstance(found, place.Place)  # else it would lack
    main = code.encode("utf-8", "replace")
    with cgroup.made(limits) as group:
        box = _Box(found, limits, group)
        try:
            return box.run([Given(name="main.py", content=BytesIO(main), bytes=len(main)), *given], look)
        except BaseException:
            box.answer.close()
            raise
        finally:
            box.end()


class _Box:
    """The sandbox's outer process and the pipes to it."""

    def __init__(self, where: place.Place, limits: Limits, group: cgroup.Group | None) -> None:
        self.answer = Answer(limits)
        self._limits = limits
        self._group = group
        self._printed = {"stdout": bytearray(), "stderr": bytearray()}
        self._info = bytearray()
        self._first: int | None = None  # the first process inside, by its number here
        self._handle: int | None = None  # of that process: numbers are used again
        self._ours = contextlib.ExitStack()
        self._select = self._ours.enter_context(selectors.DefaultSelector())
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as until_started:
            until_started.callback(self._ours.close)
            answer, info = self._pipe(theirs, "answer"), self._pipe(theirs, "info")
            rules = theirs.enter_context(tempfile.TemporaryFile())
            rules.write(seccomp.program())
            rules.seek(0)
            words = command(where, disk_bytes=limits.disk_bytes, info=info, rules=rules.fileno())
            self._process = subprocess.Popen(
                [*words, where.python, "-I", "-S", "-c", _LAUNCHER, str(answer)],
                **started(where),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                pass_fds=(answer, info, rules.fileno()),
            )
            until_started.pop_all()
        for name in ("stdout", "stderr"):
            stream = getattr(self._process, name)
            self._ours.callback(stream.close)
            self._listen_to(stream.fileno(), name)
        assert self._process.stdin is not None
        self._in = self._process.stdin
        os.set_blocking(self._in.fileno(), False)
        self._ours.callback(self._in.close)

    def run(self, given: Sequence[Given], look: Callable[[], None]) -> Finished:
        """Feed and listen until it has ended. Raises: see `run`."""
        began_s = time.monotonic()
        try:
            if not self._made(look):
                raise Transient(f"the sandbox didn't start: {self._text('stderr')[-500:] or 'no word from it'}")
            if self._group is not None:
                assert self._first is not None  # it was waited for
                # Before the code is there: what is started from now on is in it too.
                self._group.take([self._process.pid, *usage.processes(self._first)])
            began_s = time.monotonic()
            ended = self._through(given, look, began_s + self._limits.wall_s)
        except Forged:
            ended = "broken"
        took_s = time.monotonic() - began_s
        self._kill()
        with contextlib.suppress(Forged):
            self._hear(0.0)
        code = self.answer.exit_code
        if ended == "exit" and self.answer.why:
            ended = "given"
        elif ended == "exit" and code == -signal.SIGXCPU:
            ended = "cpu"
        elif ended == "exit" and code != 0 and self._group is not None and self._group.ran_out():
            ended = "memory"
        if ended != "exit":
            self.answer.close()
        return Finished(
            ended=ended,
            exit_code=code if ended == "exit" else None,
            reason=self._reason(ended),
            stdout=self._text("stdout"),
            stderr=self._text("stderr"),
            took_s=round(took_s, 3),
            produced=tuple(self.answer.produced) if ended == "exit" else (),
            left_out=tuple(self.answer.left_out),
        )

    def end(self) -> None:
        """Kill the sandbox as a whole, wait until nothing of it is left, and close the pipes."""
        self._kill()
        self._ours.close()

    def _made(self, look: Callable[[], None]) -> bool:
        """Wait until the launcher is there."""
        until_s = time.monotonic() + MADE_S
        while not (self.answer.ready and self._first) and time.monotonic() < until_s:
            if not self._hear(LOOK_EVERY_S):
                return False
            look()
        return self.answer.ready and self._first is not None

    def _through(self, given: Sequence[Given], look: Callable[[], None], until_s: float) -> Ended:
        """Let it run to its end and return what that was."""
        feed = _blocks(given, self._limits)
        self._select.register(self._in.fileno(), selectors.EVENT_WRITE, "in")
        left = memoryview(b"")
        looked_s = 0.0
        while not self.answer.over:
            ready = self._hear(LOOK_EVERY_S)
            if "in" in ready:
                left = self._feed(left, feed)
            now_s = time.monotonic()
            if sum(map(len, self._printed.values())) > self._limits.output_bytes:
                return "output"
            if now_s > until_s:
                return "time"
            if now_s - looked_s >= LOOK_EVERY_S:
                looked_s = now_s
                look()
                assert self._first is not None  # it was waited for
                if usage.memory_bytes(self._first) > self._limits.memory_bytes:
                    return "memory"
                if self._group is not None and self._group.ran_out():
                    return "memory"
                if usage.files(self._first) > self._limits.files:
                    return "files"
        return "exit"

    def _feed(self, left: memoryview, feed: Iterator[bytes]) -> memoryview:
        """Write what goes in now; return what is left of the block."""
        left = left or memoryview(next(feed, b""))
        try:
            left = left[os.write(self._in.fileno(), left) :] if left else left
        except BlockingIOError:
            return left
        except BrokenPipeError:
            left = memoryview(b"")  # the launcher is gone, or has what it needs
            self._select.unregister(self._in.fileno())
            return left
        if not left and (block := next(feed, b"")):
            return memoryview(block)
        if not left:
            self._select.unregister(self._in.fileno())
            self._in.close()
        return left

    def _hear(self, wait_s: float) -> set[str]:
        """Take what has come. Returns the streams that had something; empty: all have ended. Raises: Forged."""
        heard = {"nothing"} if any(key.data != "in" for key in self._select.get_map().values()) else set()
        for key, _ in self._select.select(wait_s):
            heard.add(key.data)
            if key.data == "in":
                continue
            try:
                data = os.read(key.fd, BLOCK_BYTES)
            except BlockingIOError:
                continue
            if not data:
                self._select.unregister(key.fd)
            if key.data == "answer":
                self.answer.take(data)
            elif key.data == "info":
                self._learn(data)
            else:
                kept = self._printed[key.data]
                kept += data[: max(0, self._limits.output_bytes + 1 - len(kept))]
        return heard

    def _learn(self, data: bytes) -> None:
        """Take what bwrap says: which process is the first inside."""
        self._info += data
        if self._first is None and len(self._info) < INFO_BYTES:
            with contextlib.suppress(ValueError, KeyError):
                first = int(json.loads(self._info)["child-pid"])
                self._handle = os.pidfd_open(first)
                self._ours.callback(os.close, self._handle)
                self._first = first

    def _kill(self) -> None:
        if self._process.poll() is not None:
            return
        if self._handle is not None:
            with contextlib.suppress(ProcessLookupError):
                # The end of the first process is the end of every one in its namespace; bwrap ends after it.
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(GONE_S)
                return
        self._process.kill()  # the kernel kills the first process with it
        self._process.wait()

    def _reason(self, ended: Ended) -> str:
        limits = self._limits
        match ended:
            case "exit":
                return ""
            case "time":
                return f"it ran for more than {limits.wall_s:g} s"
            case "cpu":
                return f"it took more than {limits.cpu_s} s of CPU"
            case "memory":
                return f"its processes held more than {limits.memory_bytes // MIB} MiB of memory"
            case "output":
                return f"it printed more than {limits.output_bytes:,} bytes"
            case "files":
                return f"it made more than {limits.files:,} files"
            case "given":
                return self.answer.why
            case "broken":
                return "it broke the sandbox's launcher, so nothing of it can be believed"

    def _text(self, name: str) -> str:
        return bytes(self._printed[name][: self._limits.output_bytes]).decode("utf-8", "replace").replace("\0", "")

    def _pipe(self, theirs: contextlib.ExitStack, name: str) -> int:
        """Make a pipe, listen to it, and return the end for the sandbox."""
        ours, other = os.pipe()
        self._ours.callback(os.close, ours)
        theirs.callback(os.close, other)
        self._listen_to(ours, name)
        return other

    def _listen_to(self, descriptor: int, name: str) -> None:
        os.set_blocking(descriptor, False)
        self._select.register(descriptor, selectors.EVENT_READ, name)


def _blocks(given: Sequence[Given], limits: Limits) -> Iterator[bytes]:
    """Yield the request: a line, then the files' bytes, of each as many as were promised."""
    files = [{"name": one.name, "bytes": one.bytes} for one in given]
    yield json.dumps({"limits": asdict(limits), "files": files}).encode() + b"\n"
    for one in given:
        left = one.bytes
        while left and (block := one.content.read(min(left, BLOCK_BYTES))):
            left -= len(block)
            yield block
        if left:
            raise Transient(f"{one.name} ended {left:,} bytes early")
