"""What the kernel knows: CPU-seconds of process trees and the machine's idle share. Linux (/proc) only.

A tree's figure counts the live processes and, for each, the children that it has waited for, so nothing is lost when
a child ends between two readings (provided its parent waits for it, which PostgreSQL and Celery do).
"""

import os
import time
from collections.abc import Collection
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
QUIET_IDLE_RATIO = 0.85  # below this a neighbour takes enough of two cores to bend a figure


def processes() -> dict[int, tuple[int, float]]:
    """Return pid -> (parent pid, CPU-seconds of the process and of its waited-for children)."""
    found: dict[int, tuple[int, float]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
        except OSError:  # it ended while we looked
            continue
        fields = stat.rpartition(")")[2].split()
        found[int(entry.name)] = (
            int(fields[1]),
            sum(int(field) for field in fields[11:15]) / _TICKS_PER_S,
        )
    return found


def descendants(roots: Collection[int]) -> set[int]:
    """Return the roots that live and every process below them."""
    table = processes()
    members = {pid for pid in roots if pid in table}
    while fresh := {pid for pid, (parent, _) in table.items() if parent in members} - members:
        members |= fresh
    return members


def cpu_s(roots: Collection[int]) -> float:
    """Return the CPU-seconds that the trees under these processes have used so far."""
    table = processes()
    return sum(table[pid][1] for pid in descendants(roots) if pid in table)


def parent_of(pid: int) -> int | None:
    """Return the parent of a process of this machine, if there is such a process."""
    entry = processes().get(pid)
    return entry[0] if entry else None


def name_of(pid: int) -> str:
    """Return the command name of a process; '' when it isn't there."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def idle_ratio(window_s: float = 0.5) -> float:
    """Return the share of the machine's CPU time that was idle during the next `window_s` seconds."""
    before = _machine_ticks()
    time.sleep(window_s)
    after = _machine_ticks()
    spent = [b - a for a, b in zip(before, after, strict=True)]
    return round((spent[3] + spent[4]) / max(1, sum(spent)), 2)


def await_quiet(patience_s: float) -> float:
    """Wait at most `patience_s` seconds for a quiet machine; return the idle share seen last."""
    give_up_s = time.monotonic() + patience_s
    while (ratio := idle_ratio()) < QUIET_IDLE_RATIO and time.monotonic() < give_up_s:
        pass
    return ratio


def _machine_ticks() -> list[int]:
    with open("/proc/stat") as file:
        return [int(field) for field in file.readline().split()[1:]]
