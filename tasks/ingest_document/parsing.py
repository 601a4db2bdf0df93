"""Asks the parser process to read a document, and kills it when it should end: limits, a person's wish, a time limit.

One parser process stands beside each thread that reads documents, started at the first one. It and the document's own
process form a process group, so one SIGKILL ends both; the next document gets a fresh one. Should this process die
itself, both go with it (prctl), and their socket is closed.
"""

import atexit
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from pydantic_core import from_json

from harness.kinds import Permanent, TimedOut, Transient
from tasks.ingest_document import parser_process
from tasks.ingest_document.limits import Limits

READY_S: Final = 30.0  # to start and import; half a second on an idle machine
LOOK_EVERY_S: Final = 0.1  # for a person's wish
_PACKAGES: Final = Path(__file__).resolve().parents[2]
_KEPT: Final = ("PATH", "LANG", "LC_ALL", "SYSTEMROOT")
_local = threading.local()


@dataclass(frozen=True, slots=True)
class Parsed:
    """A document's clean text. `unread`: pages that couldn't be read, and why."""

    title: str
    text: str
    unread: tuple[str, ...]


class Parser:
    """One parser process, and the socket to it."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", parser_process.__name__, str(theirs.fileno()), str(self.pid)],
                # Nothing of ours: what runs in there reads hostile files.
                env={name: os.environ[name] for name in _KEPT if name in os.environ} | {"PYTHONPATH": str(_PACKAGES)},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=None,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        self._socket.settimeout(LOOK_EVERY_S)
        atexit.register(self.kill)

    def hear(self, until_s: float, look: Callable[[], None]) -> dict[str, object] | None:
        """Return the next line; None when the process has ended. Raises: TimeoutError; whatever `look` raises."""
        line = b""
        while not line.endswith(b"\n"):
            try:
                more = self._socket.recv(parser_process.LINE_MAX_BYTES)
            except TimeoutError:
                look()
                if time.monotonic() > until_s:
                    raise
                continue
            except ConnectionError:
                return None
            if not more:
                return None
            line += more
        heard: dict[str, object] = json.loads(line)
        return heard

    def ask(self, line: bytes, source: BinaryIO, answer: BinaryIO) -> None:
        """Send a request. Raises: OSError when the process has ended."""
        socket.send_fds(self._socket, [line], [source.fileno(), answer.fileno()])

    def kill(self) -> None:
        """End the process and the document's, certainly."""
        if os.getpid() != self.pid:
            return
        atexit.unregister(self.kill)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        self._socket.close()


def parse(
    source: BinaryIO,
    content_type: str,
    name: str,
    look: Callable[[], None],
    limits: Limits | None = None,
    *,
    charset: str | None = None,
) -> Parsed:
    """Read a document (a real file, all of it). `look` is called about ten times a second, and may raise.

    Raises: Permanent naming the document when it can't be read; TimedOut; Transient when the parser itself fails.
    """
    limits = limits or Limits()
    with tempfile.TemporaryFile() as answer:  # unlinked: it goes with this process, however that ends
        parser = _parser(look)
        try:
            parser.ask(parser_process.request(content_type, limits, charset=charset), source, answer)
            ended = parser.hear(time.monotonic() + limits.wall_s, look)
        except TimeoutError:
            forget()
            raise TimedOut(f"content: {name!r} took longer than {limits.wall_s} s to read") from None
        except OSError as error:
            forget()
            raise Transient(f"the parser process is gone ({error}); it is started anew") from None
        except BaseException:
            forget()  # a wish, a time limit: nothing may go on reading
            raise
        if ended is None:
            forget()
            raise Transient("the parser process ended; it is started anew")
        _raise_for(ended["exit"], name, limits)
        os.lseek(answer.fileno(), 0, os.SEEK_SET)  # the file's own offset, which the parser has moved
        found = from_json(answer.read())
    if "unreadable" in found:
        raise Permanent(f"content: {name!r} {found['unreadable']}")
    return Parsed(found["title"], found["text"], tuple(found["unread"]))


def forget() -> None:
    """End this thread's parser process, if it has one."""
    parser: Parser | None = getattr(_local, "parser", None)
    _local.parser = None
    if parser is not None:
        parser.kill()


def _parser(look: Callable[[], None]) -> Parser:
    parser: Parser | None = getattr(_local, "parser", None)
    if parser is not None and parser.pid == os.getpid() and parser._process.poll() is None:
        return parser
    forget()
    parser = _local.parser = Parser()
    try:
        ready = parser.hear(time.monotonic() + READY_S, look)
    except TimeoutError:
        forget()
        raise Transient(f"the parser process wasn't ready within {READY_S:g} s") from None
    except BaseException:
        forget()
        raise
    if ready is None:
        forget()
        raise Transient("the parser process didn't start; the worker's log says why")
    return parser


def _raise_for(code: object, name: str, limits: Limits) -> None:
    match code:
        case 0:
            return
        case int() if code == -signal.SIGALRM:
            raise TimedOut(f"content: {name!r} took longer than {limits.wall_s} s to read")
        case int() if code in (-signal.SIGXCPU, -signal.SIGKILL):
            raise Permanent(f"content: {name!r} takes more than {limits.cpu_s} s of CPU, or all memory, to read")
        case int() if code == -signal.SIGXFSZ:
            raise Permanent(f"content: {name!r} holds more text than a document may")
        case int() if code < 0:
            raise Permanent(f"content: {name!r} broke its parser ({signal.Signals(-code).name})")
        case _:
            raise Permanent(f"content: {name!r} takes more memory to read than a document may, or broke its parser")
