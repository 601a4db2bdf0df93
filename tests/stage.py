"""A stage for tests of store and engine: real PostgreSQL, one engine connection, the verbs of a task's route."""

import os
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django.conf import settings

from harness.engine import dispatch, execute
from harness.engine.memory import Memory
from harness.engine.process import ProcessState, boottime_s, open_process
from harness.kinds import registry
from harness.store import leader, sessions, transitions
from harness.store.database import Connection, Role, connect
from harness.store.message import Message
from harness.store.transitions import ClaimedTask, NewTask

SESSION_POOLS = {"db": 4, "llm": 4, "tool_read": 4, "quarantine": 1}


class Stage:
    """One tenant, a leading dispatcher without a process, and the messages it would have sent."""

    def __init__(self, url: str) -> None:
        self.url = url
        registry.discover(*settings.HARNESS_TASK_PACKAGES)
        self.connection = connect(url, "engine", application_name="test")
        self.messages: list[Message] = []
        self.memory = Memory()
        self.tenant = self.add_tenant("acme")
        self.epoch = leader.take(self.connection, "test")

    def close(self) -> None:
        self.connection.close()

    def open(self, role: Role = "engine") -> Connection:
        """Another connection, for a race or another role; the caller closes it."""
        return connect(self.url, role, application_name="test-other")

    def add_tenant(self, name: str, *, cap: int = 1000) -> int:
        return int(self.one("INSERT INTO tenant (name, cap) VALUES (%s, %s) RETURNING id", name, cap))

    def add_session(self, pools: Mapping[str, int] | None = None, kinds: list[str] | None = None) -> uuid.UUID:
        session = uuid.uuid4()
        sessions.register(
            self.connection,
            session=session,
            host="test",
            pid=os.getpid(),
            pools=pools or SESSION_POOLS,
            kinds=[f"{kind.name}@{kind.version}" for kind in registry.all_kinds()] if kinds is None else kinds,
            connections=1,
            budget=1000,
        )
        return session

    def submit(self, kind: str = "noop.single", n: int = 1, **more: Any) -> list[int]:
        found = registry.find(kind)
        fields: dict[str, Any] = {
            "kind": kind,
            "version": found.version if found else 1,
            "pool": found.pool if found else "tool_read",
            "priority": 2,
            "signature": found.signature if found else "",
            "input": "{}",
        }
        tenant, run = more.pop("tenant", self.tenant), more.pop("run", 0)
        fields |= more
        tasks = [NewTask(public_id=uuid.uuid4(), **fields) for _ in range(n)]
        return transitions.submit(self.connection, tasks, tenant=tenant, run=run, actor="test")

    def see_short_work(self) -> None:
        """As if the tick before had seen work in the pool `db` that shares slots."""
        self.memory.line("db").bundled = True

    def lead(self) -> None:
        """Begin to lead again: with what is written, and nothing remembered."""
        assert self.epoch is not None
        self.memory = dispatch.begin(self.connection, epoch=self.epoch)

    def tick(self) -> list[Message]:
        """One tick of the dispatcher; the messages are kept and returned, not sent."""
        assert self.epoch is not None
        self.messages = []
        self.memory.scopes = None  # a test changes caps and pauses faster than a leader looks
        self.see_short_work()
        dispatch.tick(
            self.connection,
            settings.HARNESS_TOPOLOGY,
            self.memory,
            epoch=self.epoch,
            publish=self.messages.extend,
        )
        return self.messages

    def fold(self) -> None:
        """Tick, and write what moved, as if the last time were long ago."""
        self.memory.folded_s = self.memory.looked_whole_s = 0.0
        self.tick()

    def claim(self, message: Message, session: uuid.UUID, *, pid: int = 1) -> list[ClaimedTask]:
        return transitions.claim(
            self.connection, message.lease, message.token, session=session, pid=pid, actor="test worker"
        )

    @contextmanager
    def process(self, session: uuid.UUID, *, connections: int = 2) -> Iterator[ProcessState]:
        """An executing process under a session, in this one."""
        process = open_process(
            database_url=self.url,
            session=session,
            pools=SESSION_POOLS,
            connections=connections,
            application_name="test-process",
            pid=os.getpid(),
            beat_s=boottime_s,
        )
        try:
            yield process
        finally:
            process.downstream.close()
            process.db.close()

    def run_all(self, process: ProcessState) -> None:
        """Tick and run, until a tick releases nothing."""
        while messages := list(self.tick()):
            for message in messages:
                execute.run_lease(process, message.lease, message.token)

    def state(self, task: int) -> str:
        return str(self.one("SELECT state FROM task WHERE id = %s", task))

    def row(self, task: int) -> dict[str, Any]:
        cursor = self.connection.execute("SELECT * FROM task WHERE id = %s", (task,))
        names = [column.name for column in cursor.description or ()]
        found = cursor.fetchone()
        assert found is not None
        return dict(zip(names, found, strict=True))

    def events(self, task: int) -> list[str]:
        cursor = self.connection.execute("SELECT event FROM event WHERE task_id = %s ORDER BY seq", (task,))
        return [row[0] for row in cursor]

    def one(self, statement: str, *parameters: object) -> Any:
        row = self.connection.execute(statement, parameters).fetchone()
        return row[0] if row else None

    def hold_lead(self) -> None:
        """As if the lead were renewed all along: who reads why a task waits sees that somebody leads."""
        self.connection.execute("UPDATE leader SET until = clock_timestamp() + interval '1 hour'")

    def forget_beats(self, session: uuid.UUID) -> None:
        """As if the session had last beaten a minute ago."""
        self.connection.execute(
            "UPDATE worker_session SET beat_at = clock_timestamp() - interval '1 minute' WHERE uuid = %s", (session,)
        )


def wait_until(condition: Any, *, within_s: float, every_s: float = 0.02) -> None:
    """Wait for something that other processes bring about. Raises: AssertionError after `within_s` seconds."""
    end_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end_s, f"not so within {within_s} s: {condition}"
        time.sleep(every_s)
