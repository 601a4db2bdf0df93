"""Whether a process of this machine is still there, by the word of the kernel that ran it.

A process is known by more than its number: the place is the machine as it was booted, the namespace in which the
number counts, and the host's name. Only whoever is in the same place may ask; everywhere else silence alone tells. A
number that is in use again counts as there: the answer errs on the side of life.
"""

import os
import socket
from pathlib import Path


def place() -> str | None:
    """Return what numbers of processes are to be looked up in; None where the kernel doesn't tell."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{Path('/proc/self/ns/pid').stat().st_ino}/{socket.gethostname()}"
    except OSError:
        return None


def is_gone(pid: int) -> bool:
    """Whether no process of this place has that number, not even one that only waits to be reaped.

    >>> is_gone(os.getpid())
    False
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False  # it is there, and somebody else's
    return False
