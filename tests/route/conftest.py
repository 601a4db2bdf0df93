"""Real processes on the route: dispatchers and workers, as the Procfile starts them."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.own_redis import OwnRedis, own_redis
from tests.stage import Stage, wait_until

ENDS_S = 15.0


@dataclass
class Route:
    """Starts processes and ends those that it started."""

    environment: dict[str, str]
    folder: Path
    stage: Stage
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        log = self.folder / f"{len(self.processes)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, *arguments], env=self.environment, stdout=output, stderr=subprocess.STDOUT
            )
        self.processes.append(process)
        return process

    def dispatcher(self) -> subprocess.Popen[bytes]:
        return self.start("manage.py", "dispatcher")

    def worker(self, pools: str) -> subprocess.Popen[bytes]:
        (process,) = self.workers(pools)
        return process

    def workers(self, *pools: str) -> list[subprocess.Popen[bytes]]:
        """Start a worker of each of these pools, all at once."""
        before = self.sessions()
        started = []
        for each in pools:
            name = f"w{len(self.processes)}@test"
            started.append(self.start("-m", "celery", "-A", "config", "worker", "--resource-pool", each, "-n", name))
        wait_until(lambda: self.sessions() >= before + len(pools), within_s=30 * len(pools))
        return started

    def sessions(self) -> int:
        return int(self.stage.one("SELECT count(*) FROM worker_session"))

    def count(self, state: str) -> int:
        return int(self.stage.one("SELECT count(*) FROM task WHERE state = %s", state))

    def leader(self) -> tuple[str, int]:
        row = self.stage.connection.execute(
            "SELECT owner, epoch FROM leader WHERE until > clock_timestamp()"
        ).fetchone()
        return (row[0], row[1]) if row else ("", 0)

    def leads(self, process: subprocess.Popen[bytes]) -> bool:
        return self.leader()[0].endswith(f":{process.pid}")


@pytest.fixture
def route(stage: Stage, process_environment: dict[str, str], tmp_path: Path) -> Iterator[Route]:
    """A stage whose lead is free, with processes of its own."""
    stage.connection.execute("UPDATE leader SET until = 'epoch'")
    route = Route(process_environment | {"HARNESS_DRAIN_S": "1"}, tmp_path, stage)
    yield route
    for process in route.processes:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.terminate()
    for process in route.processes:
        try:
            process.wait(ENDS_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture
def own_broker() -> Iterator[OwnRedis]:
    """A Redis of this test's own."""
    with own_redis() as broker:
        yield broker
