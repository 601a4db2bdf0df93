"""Workers started as the Procfile does, and leases released by hand in the place of the dispatcher."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

from harness.kinds import registry
from harness.policy.lanes import NO_LANE
from harness.store import transitions
from harness.store.broker import Broker
from harness.store.clocks import Moved
from harness.store.database import Connection, connect
from harness.store.message import Message
from tests.places import places_of

STARTS_S = 60.0


def eventually(what: Callable[[], Any], *, within_s: float = 10.0) -> Any:
    """Look again until it is true. For what another process does; nothing here can pass its time."""
    until_s = time.monotonic() + within_s
    while not (seen := what()):
        assert time.monotonic() < until_s, f"not within {within_s} s"
        time.sleep(0.05)
    return seen


@dataclass
class Worker:
    """One `celery worker` process and its log."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def text(self) -> str:
        return self.log.read_text()

    def children(self) -> set[int]:
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return {int(pid) for each in tasks for pid in each.read_text().split()}

    def stop(self, within_s: float = 15.0) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(within_s)


@dataclass
class Floor:
    """Starts workers and releases work to them."""

    environment: dict[str, str]
    folder: Path
    db: Connection
    workers: list[Worker] = field(default_factory=list)
    token: int = 1000

    def run(self, *arguments: str, **environment: str) -> Worker:
        log = self.folder / f"worker{len(self.workers)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "celery", "-A", "config", "worker", *arguments],
                env=self.environment | environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.workers.append(Worker(process, log))
        return self.workers[-1]

    def start(self, pools: str, **environment: str) -> Worker:
        worker = self.run("--resource-pool", pools, "-n", f"w{len(self.workers)}@test", **environment)
        eventually(
            lambda: "worker_started" in worker.text or worker.process.poll() is not None or None, within_s=STARTS_S
        )
        assert worker.process.poll() is None, worker.text
        return worker

    def session(self, worker: Worker) -> dict[str, Any] | None:
        names = ("uuid", "pools", "kinds", "connections", "draining", "ended_at")
        row = self.db.execute(
            f"SELECT {', '.join(names)} FROM worker_session WHERE pid = %s", (worker.process.pid,)
        ).fetchone()
        return dict(zip(names, row, strict=True)) if row else None

    def submit(self, kind: str, payload: dict[str, Any]) -> int:
        found = registry.find(kind)
        assert found is not None
        new = transitions.NewTask(
            kind=kind,
            version=found.version,
            pool=found.pool,
            priority=1,
            signature=found.signature,
            input=json.dumps(payload),
            public_id=uuid.uuid4(),
        )
        return transitions.submit(self.db, [new], tenant=1, actor="test")[0]

    def release(self, kind: str, *tasks: int, timeout_s: float | None = None) -> tuple[int, int]:
        """Release these tasks on one lease and send the message. Returns lease and token."""
        lease, token = self.prepare(kind, *tasks, timeout_s=timeout_s)
        found = registry.find(kind)
        assert found is not None
        self.send(f"{found.pool}.p1", kind, lease, token, timeout_s=timeout_s)
        return lease, token

    def prepare(self, kind: str, *tasks: int, timeout_s: float | None = None) -> tuple[int, int]:
        """Release these tasks on one lease, without a message. Returns lease and token."""
        found = registry.find(kind)
        assert found is not None
        self.token += 1
        lease = transitions.NewLease(
            token=self.token,
            pool=found.pool,
            via=None,
            tenant=1,
            run=0,
            priority=1,
            lane=NO_LANE,
            kind=kind,
            signature=found.signature,
            est_s=found.est_s,
            cost=1.0,
            timeout_s=timeout_s or found.timeout_s,
            tasks=tasks,
            places=places_of(self.db, tasks),
        )
        epoch = self.db.execute("SELECT epoch FROM leader").fetchone()
        assert epoch is not None
        capacities = dict.fromkeys(found.resources, 100)
        with self.db.transaction():  # with slots for whatever a test wants to send, also too much
            self.db.execute(
                "INSERT INTO worker_session (uuid, host, pid, pools, kinds, connections) "
                "VALUES (gen_random_uuid(), 'nowhere', 0, %s, '{}', 0)",
                (json.dumps({found.pool: 1000}),),
            )
            done = transitions.release(self.db, [lease], Moved(), capacities=capacities, epoch=epoch[0])
            self.db.execute("DELETE FROM worker_session WHERE host = 'nowhere'")
        return done.made[self.token][0], self.token

    def send(self, queue: str, kind: str, lease: int, token: int, *, timeout_s: float | None = None) -> None:
        broker = Broker(self.environment["BROKER_URL"])
        limits = (timeout_s + 1, timeout_s) if timeout_s else None
        broker.publish([Message(queue=queue, kind=kind, lease=lease, token=token, time_limits_s=limits)])
        broker.close()

    def run_task(self, kind: str, payload: dict[str, Any]) -> int:
        task = self.submit(kind, payload)
        self.release(kind, task)
        return task

    def state(self, task: int) -> str:
        row = self.db.execute("SELECT state FROM task WHERE id = %s", (task,)).fetchone()
        assert row is not None
        return str(row[0])

    def wait_for(self, state: str, *tasks: int, within_s: float = 10.0) -> None:
        """Wait until all these tasks are in this state."""
        eventually(lambda: {self.state(task) for task in tasks} == {state}, within_s=within_s)

    def leases(self) -> int:
        row = self.db.execute("SELECT count(*) FROM lease").fetchone()
        assert row is not None
        return int(row[0])

    def connections(self, worker: str) -> int:
        row = self.db.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s AND datname = current_database()",
            (f"harness-{worker}",),
        ).fetchone()
        assert row is not None
        return int(row[0])


@pytest.fixture
def floor(process_environment: dict[str, str], tmp_path: Path) -> Iterator[Floor]:
    """A place where workers run; those that a test leaves are killed."""
    environment = process_environment | {"HARNESS_TASK_PACKAGES": "tasks,tests.worker.kinds", "HARNESS_DRAIN_S": "2"}
    registry.discover(*environment["HARNESS_TASK_PACKAGES"].split(","))
    url = environment["DATABASE_URL"]
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute("INSERT INTO tenant (id, name) VALUES (1, 'one') ON CONFLICT DO NOTHING")
        owner.execute(
            "INSERT INTO leader (id, epoch, owner, until, sleeping) VALUES (1, 1, 'test', now() + '1 hour', false) "
            "ON CONFLICT (id) DO UPDATE SET epoch = leader.epoch + 1, until = excluded.until"
        )
    with connect(url, "engine", application_name="test") as db:
        floor = Floor(environment, tmp_path, db)
        try:
            yield floor
        finally:
            for worker in floor.workers:
                if worker.process.poll() is None:
                    os.kill(worker.process.pid, signal.SIGKILL)
                    worker.process.wait()
