"""The processes of a run: the Procfile's own, under supervisor as in the local stack, and who of them is who.

Supervisor restarts what ends. Pids are asked of supervisor; children of prefork workers are read from /proc.
"""

import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

from benchmarks import machine
from benchmarks.stage import CHECKOUT
from harness.ops.local import procfile, supervision
from harness.ops.local.places import open_places
from harness.ops.local.processes import MARK

LEFT_OUT = ("flower",)  # it only looks
PREFORK = ("worker_cpu", "worker_quarantine")
SETTLE_S = 1  # a process killed sooner after its start waits a moment longer for the next
RUNNING_S = 120.0


class Cast:
    """Use as a context manager: leaving it ends every process, stopped ones too."""

    def __init__(self, home: Path, environment: Mapping[str, str], *, port: int) -> None:
        self.places = open_places(home)
        programs = procfile.read(CHECKOUT / "Procfile")
        self._programs = {name: command for name, command in programs.items() if name not in LEFT_OUT}
        scripts = str(Path(sys.executable).parent)
        self._environment = {
            **environment,
            MARK: str(self.places.stack),
            "PATH": os.pathsep.join([scripts, os.environ.get("PATH", os.defpath)]),
            "PYTHONUNBUFFERED": "1",
            "CELERY_SKIP_CHECKS": "1",
            "MALLOC_ARENA_MAX": "2",
        }
        self._port = port
        self._supervision = supervision.Supervision(self.places, CHECKOUT, settle_s=SETTLE_S)

    def __enter__(self) -> Self:
        self._supervision.start(
            self._programs, {"PORT": str(self._port), "STACK": str(self.places.stack)}, self._environment
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._supervision.stop()
        self.places.drop_socket_folders()

    def wait_running(self, ready: Callable[[], bool]) -> None:
        """Return when every process runs and `ready`. Raises: Unavailable with the logs of those that don't."""
        self._supervision.wait_running(ready, patience_s=RUNNING_S)

    def pids(self, role: str) -> list[int]:
        """Return the processes of a role that run now: a program of the Procfile, or "child" of a prefork pool."""
        running = {one.name: one.pid for one in supervision.ask(self.places) if one.pid}
        if role != "child":
            return [pid for name, pid in sorted(running.items()) if name == role or name.startswith(f"{role}_")]
        parents = {running[name] for name in PREFORK if name in running}
        return sorted(pid for pid, (parent, _) in machine.processes().items() if parent in parents)

    def keep_logs(self, folder: Path) -> None:
        """Copy all logs to a folder."""
        shutil.copytree(self.places.logs, folder, dirs_exist_ok=True)


def send(pid: int, number: signal.Signals) -> bool:
    """Signal a process; False when it is gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
