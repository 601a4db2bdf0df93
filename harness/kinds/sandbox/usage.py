"""What a running sandbox uses now, read from /proc of this machine: memory of all its processes, and files in its /tmp.

Where no cgroup can be had this is what bounds the sum; each process's own limit bounds one alone.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

_COUNTED = ("RssAnon:", "RssShmem:", "VmSwap:")


def processes(first: int) -> Iterator[int]:
    """Yield the sandbox's processes, the first one first: who loses its parent becomes the first one's child."""
    waiting = [first]
    while waiting:
        pid = waiting.pop()
        yield pid
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{pid}/task").iterdir():
                children = (thread / "children").read_text(encoding="ascii")
                waiting += map(int, children.split())


def memory_bytes(first: int) -> int:
    """Return what its processes hold that is no file's. Shared pages count for each."""
    return sum(map(_held_bytes, processes(first)))


def files(first: int) -> int:
    """Return how many files and folders its /tmp has; 0 when it has ended."""
    try:
        room = os.statvfs(f"/proc/{first}/root/tmp")
    except OSError:
        return 0
    return room.f_files - room.f_ffree


def _held_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(_COUNTED))
