"""Runs inside the sandbox, from its text, by whatever Python 3 is there: puts the files in place, limits and starts the
code, ends what it left running, and hands over the files that it wrote below `out`.

    in (0): a JSON line {"limits": .., "files": [{"name": .., "bytes": ..}]}, then the files' bytes
    answer: a JSON line {"ready": true}; then {"file": name, "bytes": n} and n bytes for each; last {"exit": code, ..}

The code runs under the same account and could forge all of that: the asker believes nothing but bytes within limits.
Standard library only, and nothing newer than Python 3.9.
"""

import contextlib
import json
import os
import resource
import signal
import stat
import sys
from pathlib import Path
from typing import Any, BinaryIO

OUT = "out"
BLOCK = 1 << 20
NAME_CHARS = 200


def main(arguments: list[str]) -> int:
    """Do it. `arguments`: the descriptor for the answer."""
    answer = int(arguments[0])
    os.set_inheritable(answer, False)
    _tell(answer, {"ready": True})
    source = os.fdopen(0, "rb", closefd=False)
    request = json.loads(source.readline())
    try:
        _place(source, request["files"])
    except OSError as error:
        _tell(answer, {"exit": None, "why": "the files given don't fit: " + str(error.strerror)})
        return 0
    child = os.fork()
    if child == 0:
        _become(request["limits"])
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)  # all but this and the sandbox's first process
    left_out = _hand_over(answer, request["limits"])
    code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    _tell(answer, {"exit": code, "left_out": left_out})
    return 0


def _place(source: BinaryIO, files: list[dict[str, Any]]) -> None:
    Path(OUT).mkdir()
    for one in files:
        left = one["bytes"]
        with open(one["name"], "wb") as target:
            while left:
                block = source.read(min(left, BLOCK))
                if not block:
                    raise OSError(0, "they ended early")
                target.write(block)
                left -= len(block)


def _become(limits: dict[str, int]) -> None:
    """In the child: take the limits and become the code."""
    try:
        nowhere = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nowhere, 0)
        for which, value in (
            (resource.RLIMIT_CPU, limits["cpu_s"]),
            (resource.RLIMIT_AS, limits["memory_bytes"]),
            (resource.RLIMIT_FSIZE, limits["disk_bytes"]),
            (resource.RLIMIT_NPROC, limits["processes"] + 2),  # and the sandbox's first process, and the launcher
            (resource.RLIMIT_NOFILE, 256),
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_MSGQUEUE, 0),
            (resource.RLIMIT_MEMLOCK, 0),
        ):
            resource.setrlimit(which, (value, value + (which == resource.RLIMIT_CPU)))
        os.execv(sys.executable, [sys.executable, "-s", "-B", "-u", "main.py"])
    finally:
        os._exit(127)


def _hand_over(answer: int, limits: dict[str, int]) -> list[list[str]]:
    """Send what lies in `out`; return what was left out, and why."""
    left_out: list[list[str]] = []
    n = total = 0
    try:
        names = sorted(one.name for one in Path(OUT).iterdir())
    except OSError:
        return left_out
    for name in names[:1000]:
        told = name.encode("utf-8", "replace").decode()
        if not name.isprintable() or len(name) > NAME_CHARS:
            left_out.append([told[:NAME_CHARS], "its name isn't one to keep"])
            continue
        try:
            handle = os.open(os.path.join(OUT, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            left_out.append([told, error.strerror or "can't be opened"])
            continue
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            left_out.append([told, "no regular file"])
        elif n >= limits["results"]:
            left_out.append([told, f"more than {limits['results']} files"])
        elif total + about.st_size > limits["results_bytes"]:
            left_out.append([told, f"more than {limits['results_bytes']} bytes in all"])
        else:
            n, total = n + 1, total + about.st_size
            _tell(answer, {"file": told, "bytes": about.st_size})
            _copy(handle, answer, about.st_size)
        os.close(handle)
    return left_out[:100]


def _copy(handle: int, answer: int, size: int) -> None:
    while size:
        block = os.read(handle, min(size, BLOCK))
        size -= len(block) or size
        _write(answer, block)


def _tell(answer: int, value: dict[str, Any]) -> None:
    _write(answer, json.dumps(value).encode() + b"\n")


def _write(answer: int, data: bytes) -> None:
    while data:
        data = data[os.write(answer, data) :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
