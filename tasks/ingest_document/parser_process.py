"""`python -m tasks.ingest_document.parser_process FD PARENT`: forks one process for each document to read.

It holds the parsers, loaded once, and nothing else: no secrets in its environment, no connection, no file but the one
to read and the one for the answer, which come over the socket. Each document's process limits itself (address space,
CPU, output, wall clock) and dies with this one, as this one dies with its asker. See parsing.py for the other side.

A request is one JSON line with two file descriptors; the answer is one JSON line: how the document's process ended.
"""

import ctypes
import gc
import json
import logging
import os
import resource
import signal
import socket
import sys
from dataclasses import asdict
from typing import Any, BinaryIO, Final, NoReturn

from tasks.ingest_document.limits import TEXT_MAX_CHARS, Limits, Unreadable

LINE_MAX_BYTES: Final = 65_536
_PR_SET_PDEATHSIG: Final = 1


def main(arguments: list[str]) -> int:
    """Serve until the asker hangs up."""
    asker = socket.socket(fileno=int(arguments[0]))
    die_with(int(arguments[1]))
    logging.disable()  # parsers warn of every page that is odd
    _load()
    asker.sendall(b'{"ready": true}\n')
    while True:
        line, handles, _, _ = socket.recv_fds(asker, LINE_MAX_BYTES, 2)
        if not line:
            return 0
        child = os.fork()
        if child == 0:
            _read_one(asker, json.loads(line), handles)
        for handle in handles:
            os.close(handle)
        _, status = os.waitpid(child, 0)
        asker.sendall(json.dumps({"exit": os.waitstatus_to_exitcode(status)}).encode() + b"\n")


def die_with(parent: int) -> None:
    """Have this process killed when its parent ends, where the system can do that; leave if it has ended already."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def _load() -> None:
    """Import all that reads, before the first fork: then no document's process has to (70 ms each time)."""
    import tasks.ingest_document.binary_readers
    import tasks.ingest_document.cleaning
    import tasks.ingest_document.content_types
    import tasks.ingest_document.decoding
    import tasks.ingest_document.readers  # noqa: F401

    gc.collect()
    gc.freeze()  # a collection in a child would copy every page that they share


def _read_one(asker: socket.socket, request: dict[str, Any], handles: list[int]) -> NoReturn:
    """In the document's own process: limit it, read, write the answer, exit."""
    parent = os.getppid()
    asker.close()
    os.dup2(1, 2)  # to nowhere: a parser's warnings have no end
    try:
        die_with(parent)
        _limit(Limits(**request["limits"]))
        os.lseek(handles[0], 0, os.SEEK_SET)  # the offset is shared with the asker, who has looked at the beginning
        with os.fdopen(handles[0], "rb") as source, os.fdopen(handles[1], "wb") as answer:
            answer.write(json.dumps(_answer(request, source)).encode("utf-8", "replace"))
    finally:
        os._exit(1 if sys.exc_info()[0] else 0)


def _limit(limits: Limits) -> None:
    for number in (signal.SIGALRM, signal.SIGXCPU, signal.SIGXFSZ, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.alarm(limits.wall_s)
    resource.setrlimit(resource.RLIMIT_CPU, (limits.cpu_s, limits.cpu_s + 1))
    resource.setrlimit(resource.RLIMIT_AS, (limits.memory_bytes, limits.memory_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limits.result_bytes, limits.result_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))


def _answer(request: dict[str, Any], source: BinaryIO) -> dict[str, Any]:
    try:
        title, text, unread = read(request["content_type"], source, charset=request["charset"])
    except Unreadable as error:
        return {"unreadable": str(error)}
    except MemoryError:
        return {"unreadable": "takes more memory to read than a document may"}
    except RecursionError:
        return {"unreadable": "is nested too deeply"}
    return {"title": title[:1000], "text": text, "unread": unread}


def read(content_type: str, source: BinaryIO, *, charset: str | None = None) -> tuple[str, str, list[str]]:
    """Return (title, clean text, what was left unread). Raises: Unreadable, MemoryError, RecursionError."""
    from harness.kinds import documents
    from tasks.ingest_document import binary_readers, content_types, decoding, readers
    from tasks.ingest_document.cleaning import clean, without_unfit

    unread: list[str] = []
    if content_type == content_types.PDF:
        title, text, unread = binary_readers.read_pdf(source)
    elif content_type == documents.DOCX:
        title, text, unread = binary_readers.read_docx(source)
    else:
        content = decoding.decode(source.read(), html=content_type == content_types.HTML, charset=charset)
        if len(content) > TEXT_MAX_CHARS:
            raise Unreadable(f"holds {len(content):,} characters, more than {TEXT_MAX_CHARS:,}: split it")
        try:
            title, text = readers.READERS[content_type](without_unfit(content))
        except (MemoryError, RecursionError):
            raise
        except Exception as error:  # noqa: BLE001  # a parser may raise anything
            raise Unreadable(f"can't be read as {content_type}: {type(error).__name__}: {error}"[:300]) from None
    return clean(title), clean(text), unread  # clean again: entities spell what the content could not hold


def request(content_type: str, limits: Limits, *, charset: str | None = None) -> bytes:
    """Return the line that asks for a document."""
    asked = {"content_type": content_type, "charset": charset, "limits": asdict(limits)}
    return json.dumps(asked).encode() + b"\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
