"""The effect log: one line for each thing that the work really did, and the body that every arm runs.

A line is `MARK TAG I SUBMITTED STARTED ENDED PID` (times in epoch seconds); each process appends to a file of its
own. MARK `S` = the body began (written only by bodies that last), `D` = the body is done. Standard library only:
peers, kinds and the reader share this module, and it must cost every arm the same.
"""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDER_VARIABLE = "HARNESS_BENCH_LOG"
BEGUN, DONE = "S", "D"
_open_file: dict[int, int] = {}  # pid -> file descriptor; a forked child must not write to its parent's file


@dataclass(frozen=True, kw_only=True, slots=True)
class Effect:
    """One line of the log. Times are epoch seconds."""

    mark: str
    tag: str
    i: int
    submitted_s: float
    started_s: float
    ended_s: float
    pid: int


def write(mark: str, tag: str, i: int, submitted_s: float, started_s: float, ended_s: float) -> None:
    """Append one line to this process's file, in one write."""
    pid = os.getpid()
    descriptor = _open_file.get(pid)
    if descriptor is None:
        path = Path(os.environ[FOLDER_VARIABLE]) / f"{pid}.rec"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        _open_file.clear()
        _open_file[pid] = descriptor
    os.write(
        descriptor,
        f"{mark} {tag} {i} {submitted_s:.6f} {started_s:.6f} {ended_s:.6f} {pid}\n".encode(),
    )


def body(tag: str, i: int, submitted_s: float, duration_s: float) -> None:
    """Do one unit of work: wait `duration_s`, leave a line."""
    started_s = time.time()
    if duration_s:
        write(BEGUN, tag, i, submitted_s, started_s, started_s)
        time.sleep(duration_s)
    write(DONE, tag, i, submitted_s, started_s, time.time())


async def body_async(tag: str, i: int, submitted_s: float, duration_s: float) -> None:
    """Do one unit of work, for queues that run coroutines."""
    started_s = time.time()
    if duration_s:
        write(BEGUN, tag, i, submitted_s, started_s, started_s)
        await asyncio.sleep(duration_s)
    write(DONE, tag, i, submitted_s, started_s, time.time())


class EffectLog:
    """Reads a folder of effect files while it grows; each call looks only at what is new."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._offsets: dict[Path, int] = {}
        self._effects: list[Effect] = []
        self._counts: Counter[tuple[str, str]] = Counter()

    def clear(self) -> None:
        """Delete all files. Call it only while no writer lives."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in self.folder.glob("*.rec"):
            path.unlink()
        self._offsets.clear()
        self._effects.clear()
        self._counts.clear()

    def count(self, tag: str, mark: str = DONE) -> int:
        """Return how many lines with this tag and mark there are now."""
        self._follow()
        return self._counts[mark, tag]

    def read(self, tag: str, mark: str = DONE) -> list[Effect]:
        """Return the effects with this tag and mark, ordered by start."""
        self._follow()
        found = (effect for effect in self._effects if effect.mark == mark and effect.tag == tag)
        return sorted(found, key=lambda effect: effect.started_s)

    def _follow(self) -> None:
        for path in self.folder.glob("*.rec"):
            with path.open("rb") as file:
                file.seek(self._offsets.get(path, 0))
                fresh = file.read()
            whole = fresh[: fresh.rfind(b"\n") + 1]  # a reader may see half of a line that is being written
            self._offsets[path] = self._offsets.get(path, 0) + len(whole)
            for effect in _parse(whole):
                self._effects.append(effect)
                self._counts[effect.mark, effect.tag] += 1


def _parse(lines: bytes) -> Iterator[Effect]:
    for line in lines.decode().splitlines():
        mark, tag, i, submitted_s, started_s, ended_s, pid = line.split()
        yield Effect(
            mark=mark,
            tag=tag,
            i=int(i),
            submitted_s=float(submitted_s),
            started_s=float(started_s),
            ended_s=float(ended_s),
            pid=int(pid),
        )
