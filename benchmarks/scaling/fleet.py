"""The workers of one arm that come and go: started as asked, told to drain when there are too many, never killed.

A worker that was told to go is still there until its running tasks have ended, but no longer counted.
"""

import subprocess
import time
from collections.abc import Callable

from benchmarks.stage import STOP_S, Stage


class Fleet:
    """Workers of one command line; `command` makes that of number n. The newest go first."""

    def __init__(self, stage: Stage, command: Callable[[int], str]) -> None:
        self._stage = stage
        self._command = command
        self._here: list[subprocess.Popen[bytes]] = []
        self._leaving: list[subprocess.Popen[bytes]] = []
        self._made = 0
        self.counts: list[tuple[float, int]] = []  # (epoch s, how many from then on)

    @property
    def count(self) -> int:
        """How many there are now."""
        return len(self._here)

    def set(self, count: int) -> None:
        """Have so many from now on."""
        while len(self._here) < count:
            self._made += 1
            self._here += self._stage.start([self._command(self._made)])
        while len(self._here) > count:
            self.release(self._here.pop())
        if not self.counts or self.counts[-1][1] != count:
            self.counts.append((time.time(), count))

    def release(self, process: subprocess.Popen[bytes]) -> None:
        """Tell a process of the stage to end, which is no failure of the stage from now on."""
        self._stage.workers = [one for one in self._stage.workers if one is not process]
        process.terminate()
        self._leaving.append(process)

    def close(self) -> None:
        """End those that are still leaving, with the rest of the stage."""
        give_up_s = time.monotonic() + STOP_S
        while any(one.poll() is None for one in self._leaving) and time.monotonic() < give_up_s:
            time.sleep(0.05)
        self._stage.kill(self._leaving)
