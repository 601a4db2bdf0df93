"""Real dispatchers and workers, as on the route, with kinds that die and hang, and a log of effects outside of them."""

import contextlib
import json
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.kinds import registry
from harness.ops.local import processes
from tests.recovery.kinds.trace.kind import FOLDER
from tests.route.conftest import Route
from tests.stage import Stage

PACKAGES = "tasks,tests.recovery.kinds"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the effect log: `what` is begun, effect or ended."""

    what: str
    i: int
    number: int
    at_s: float
    pid: int


@dataclass
class Ward(Route):
    """A route whose effects are told by files, and whose processes a test kills, stops and continues."""

    effects: Path = field(default_factory=Path)

    def lines(self, what: str, i: int | None = None) -> list[Line]:
        """The lines so far, by time."""
        found = []
        for path in self.effects.glob("*.effects"):
            for text in path.read_text().splitlines():
                word, number, n, at_s, pid = text.split()
                found.append(Line(word, int(number), int(n), float(at_s), int(pid)))
        return sorted((x for x in found if x.what == what and i in (None, x.i)), key=lambda line: line.at_s)

    def submit(self, kind: str, *payloads: dict[str, Any], **more: Any) -> list[int]:
        """Submit one task a payload."""
        return [self.stage.submit(kind, input=json.dumps(one), **more)[0] for one in payloads]

    def pass_the_silence(self, process: subprocess.Popen[bytes]) -> None:
        """As if twenty seconds had passed since the last beat of a dead worker."""
        self.stage.connection.execute(
            "UPDATE worker_session SET beat_at = beat_at - interval '1 minute' WHERE pid = %s", (process.pid,)
        )

    def stop(self, process: subprocess.Popen[bytes]) -> None:
        """SIGSTOP to a worker and its children."""
        for each in self._tree(process):
            each.send_signal(signal.SIGSTOP)

    def go_on(self, process: subprocess.Popen[bytes]) -> float:
        """SIGCONT to a worker and its children. Returns when, in Unix seconds."""
        tree = self._tree(process)
        at_s = time.time()
        for each in tree:
            each.send_signal(signal.SIGCONT)
        return at_s

    @staticmethod
    def _tree(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
        parent = psutil.Process(process.pid)
        return [parent, *parent.children(recursive=True)]

    def text(self, process: subprocess.Popen[bytes]) -> str:
        """What a process has written."""
        return (self.folder / f"{self.processes.index(process)}.log").read_text()


@pytest.fixture
def ward(stage: Stage, process_environment: dict[str, str], tmp_path: Path) -> Iterator[Ward]:
    """A stage whose lead is free."""
    registry.discover(*PACKAGES.split(","))
    effects = tmp_path / "effects"
    effects.mkdir()
    stage.connection.execute("UPDATE leader SET until = 'epoch'")
    environment = process_environment | {
        "HARNESS_TASK_PACKAGES": PACKAGES,
        "HARNESS_DRAIN_S": "1",
        FOLDER: str(effects),
    }
    ward = Ward(environment, tmp_path, stage, effects=effects)
    yield ward
    # Nothing here needs a gentle end, and children outlive a parent that a test has killed.
    processes.end(ours(effects), first=signal.SIGKILL, patience_s=5.0)
    for process in ward.processes:
        process.wait()


def ours(effects: Path) -> list[psutil.Process]:
    """Every process that was started for this test, and what those started: known by the folder of their effects."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(FOLDER) == str(effects):
                found.append(process)
    return found
