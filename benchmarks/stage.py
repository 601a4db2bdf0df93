"""Runs one arm: its environment, its one-off commands, its worker processes, and the log of their effects.

Every process that is started here is ended here, by its own id or process group, also when the run fails.
"""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from benchmarks import effects, machine
from benchmarks.arms import Arm
from benchmarks.servers import Servers
from harness.policy.errors import Unavailable

CHECKOUT = Path(__file__).resolve().parent.parent
STOP_S = 12.0  # a worker that got SIGTERM may take this long to drain before it is killed
COMMAND_S = 600.0  # the longest a one-off command may take (a million rows)


class Stage:
    """One arm with its own log folder. Use as a context manager: leaving it stops the arm's processes."""

    def __init__(self, arm: Arm, servers: Servers, folder: Path) -> None:
        self.arm = arm
        self.folder = folder / arm.name
        self.log = effects.EffectLog(self.folder / "effects")
        self.database_url = servers.database(arm.database) if arm.database else servers.database_url
        self.broker_url = servers.broker(arm.broker)
        self.workers: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        self.log.clear()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def environment(self) -> dict[str, str]:
        """Return what the arm's processes see."""
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return inherited | {
            effects.FOLDER_VARIABLE: str(self.log.folder),
            "DATABASE_URL": self.database_url,
            "BROKER_URL": self.broker_url,
            "PYTHONPATH": str(CHECKOUT),
            "C_FORCE_ROOT": "1",
            **self.arm.environment,
        }

    def drive(self, command: str, **arguments: Any) -> dict[str, Any]:
        """Run one command of benchmarks.drive and return its answer. Raises: Unavailable with the end of its output."""
        answer = self.run(
            [
                sys.executable,
                "-m",
                "benchmarks.drive",
                self.arm.module,
                command,
                json.dumps(arguments),
            ]
        ).splitlines()
        parsed: dict[str, Any] = json.loads(answer[-1])
        return parsed

    def run(self, argv: Sequence[str], *, may_end_with: Sequence[int] = ()) -> str:
        """Run a command to its end; return its standard output.

        `may_end_with`: exit codes besides 0 that are no failure. Raises: Unavailable when it fails.
        """
        try:
            done = subprocess.run(
                list(argv),
                env=self.environment(),
                cwd=CHECKOUT,
                capture_output=True,
                text=True,
                timeout=COMMAND_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise Unavailable(f"{self.arm.name}: {shlex.join(argv[1:5])} took longer than {COMMAND_S:.0f} s") from error
        if done.returncode and done.returncode not in may_end_with:
            raise Unavailable(
                f"{self.arm.name}: {shlex.join(argv[1:5])} ended with {done.returncode}:\n{done.stderr[-2000:]}"
            )
        return done.stdout

    def start(self, commands: Sequence[str] | None = None) -> list[subprocess.Popen[bytes]]:
        """Start worker processes (by default the arm's), each in a process group of its own; return the new ones."""
        places = {"python": sys.executable, "bin": str(Path(sys.executable).parent)}
        fresh = []
        for number, command in enumerate(commands or self.arm.workers, start=len(self.workers)):
            with (self.folder / f"process-{number}.log").open("wb") as output:
                fresh.append(
                    subprocess.Popen(
                        [word.format(**places) for word in shlex.split(command)],
                        env=self.environment(),
                        cwd=CHECKOUT,
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=output,
                        start_new_session=True,
                    )
                )
        self.workers += fresh
        return fresh

    def kill(self, victims: Sequence[subprocess.Popen[bytes]] | None = None) -> None:
        """End processes and all below them with SIGKILL at once, as when the host dies."""
        chosen = list(self.workers if victims is None else victims)
        for pid in machine.descendants([process.pid for process in chosen if process.poll() is None]):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in chosen:
            process.wait()
        self.workers = [process for process in self.workers if process not in chosen]

    def stop(self) -> None:
        """Ask all processes to end, and kill what is left after STOP_S."""
        for process in self.workers:
            if process.poll() is None:
                process.terminate()
        give_up_s = time.monotonic() + STOP_S
        while any(process.poll() is None for process in self.workers) and time.monotonic() < give_up_s:
            time.sleep(0.02)
        self.kill()

    def wait(
        self,
        tag: str,
        n: int,
        patience_s: float,
        *,
        mark: str = effects.DONE,
        every_s: float = 0.05,
    ) -> bool:
        """Wait until the log holds n lines of this tag and mark; False when patience ended first.

        Raises: Unavailable when a worker process died meanwhile, with the end of its output.
        """
        give_up_s = time.monotonic() + patience_s
        while self.log.count(tag, mark) < n:
            self.check_alive()
            if time.monotonic() > give_up_s:
                return False
            time.sleep(every_s)
        return True

    def check_alive(self) -> None:
        """Raises: Unavailable when a process that was started has ended by itself."""
        for number, process in enumerate(self.workers):
            if process.poll() is not None:
                raise Unavailable(f"{self.arm.name}: a worker ended with {process.returncode}:\n{self.output(number)}")

    def output(self, number: int) -> str:
        """Return the end of what process `number` wrote."""
        return (self.folder / f"process-{number}.log").read_text(errors="replace")[-2000:]

    def pids(self) -> list[int]:
        """Return the process ids that head the arm's process trees."""
        return [process.pid for process in self.workers]


@dataclass(frozen=True, kw_only=True, slots=True)
class Skipped:
    """An arm that was not measured, and why."""

    arm: str
    reason: str
