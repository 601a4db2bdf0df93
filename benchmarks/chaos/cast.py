"""The processes of a run: the Procfile's own, under supervisor as in the local stack, and who of them is who.

Each pool has two workers, as a deployment has that is to outlive one. Supervisor restarts what ends. Pids are asked
of supervisor; children of prefork workers are read from /proc.
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
TWICE = ("worker_net", "worker_db", "worker_cpu", "worker_quarantine")
PREFORK = ("worker_cpu", "worker_quarantine")
CONNECTIONS = 140  # to the database: more workers than the stack has, and those that were killed count for a while
SETTLE_S = 1  # a process killed sooner after its start waits a moment longer for the next
RUNNING_S = 120.0


class Cast:
    """Use as a context manager: leaving it ends every process, stopped ones too."""

    def __init__(self, home: Path, environment: Mapping[str, str], *, port: int) -> None:
        self.places = open_places(home)
        self._programs = programs()
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
        parents = {pid for name, pid in running.items() if name.removesuffix("_2") in PREFORK}
        return sorted(pid for pid, (parent, _) in machine.processes().items() if parent in parents)

    def keep_logs(self, folder: Path) -> None:
        """Copy all logs to a folder."""
        shutil.copytree(self.places.logs, folder, dirs_exist_ok=True)


def programs() -> dict[str, str]:
    """Return the programs by name; the second worker of a pool is NAME_2, and a node of its own to Celery.

    >>> {name: command.rpartition("-n ")[2] for name, command in programs().items() if name.startswith("worker_db")}
    {'worker_db': 'db@%h', 'worker_db_2': 'db2@%h'}
    """
    once = procfile.read(CHECKOUT / "Procfile")
    again = {f"{name}_2": command.replace("@%h", "2@%h") for name, command in once.items() if name in TWICE}
    return {name: command for name, command in (once | again).items() if name not in LEFT_OUT}


def send(pid: int, number: signal.Signals) -> bool:
    """Signal a process; False when it is gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
