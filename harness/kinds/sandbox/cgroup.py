"""A cgroup for each run, below one that an operator names (HARNESS_SANDBOX_CGROUP): the kernel's own bound on memory
and processes, beside the limits that need none.

The named one must be this worker's to change: of cgroup v2 a delegated one without processes of its own, with memory
and pids in its `cgroup.subtree_control`; of v1 one of the memory hierarchy.
"""

import contextlib
import itertools
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from harness.kinds.errors import Permanent
from harness.kinds.sandbox.limits import MIB, Limits

VARIABLE: Final = "HARNESS_SANDBOX_CGROUP"
ROOM_BYTES: Final = 32 * MIB  # for what the kernel keeps for the processes, and the launcher

_numbers = itertools.count(1)


class Group:
    """One run's cgroup."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def take(self, pids: Iterable[int]) -> None:
        """Put processes into it, and with them whatever they start from now on. Raises: Permanent."""
        for pid in pids:
            _write(self._folder / "cgroup.procs", str(pid))

    def ran_out(self) -> bool:
        """Whether the kernel ended a process of it for want of memory."""
        for name in ("memory.events", "memory.oom_control"):
            with contextlib.suppress(OSError):
                lines = (self._folder / name).read_text(encoding="ascii").splitlines()
                return any(line.startswith("oom_kill ") and int(line.split()[1]) > 0 for line in lines)
        return False


@contextlib.contextmanager
def made(limits: Limits) -> Iterator[Group | None]:
    """Make a cgroup with these limits, and remove it when its processes are gone. None: no cgroup is named.

    Raises: Permanent when the named one isn't to be used.
    """
    named = os.environ.get(VARIABLE, "")
    if not named:
        yield None
        return
    folder = Path(named, f"harness-{os.getpid()}-{next(_numbers)}")
    try:
        folder.mkdir()
    except OSError as error:
        raise Permanent(f"{VARIABLE}: no cgroup can be made below {named}: {error.strerror}") from None
    try:
        most = str(limits.memory_bytes + limits.disk_bytes + ROOM_BYTES)
        if (folder / "memory.max").exists():
            _write(folder / "memory.max", most)
            _write(folder / "pids.max", str(limits.processes + 3))  # bubblewrap outside and inside, and the launcher
            if (folder / "memory.swap.max").exists():
                _write(folder / "memory.swap.max", "0")
        elif (folder / "memory.limit_in_bytes").exists():
            _write(folder / "memory.limit_in_bytes", most)
        else:
            raise Permanent(f"{VARIABLE}: {named} doesn't control memory (cgroup.subtree_control, or the v1 hierarchy)")
        yield Group(folder)
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _write(path: Path, value: str) -> None:
    try:
        path.write_text(value, encoding="ascii")
    except OSError as error:
        raise Permanent(f"{VARIABLE}: {path} can't be written: {error.strerror}") from None
