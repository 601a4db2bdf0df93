"""A stage with one executing process whose resources a test sets, and permits of another process beside it."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from harness.engine import execute
from harness.engine.process import ProcessState
from harness.policy.permits import Ask, Granted, Reading, Refused, Want
from harness.policy.resources import Live
from harness.store.permits import Permits
from tests.stage import Stage

LLM, HTTP = "llm:default", "tool:http"


class Line:
    """What tests of calls do with a stage."""

    def __init__(self, stage: Stage, process: ProcessState, url: str) -> None:
        self.stage, self.process, self.url = stage, process, url
        self.others = Permits(url, lambda: process.downstream.live)

    def set(self, name: str, **changes: Any) -> None:
        live = dict(self.process.downstream.live)
        live[name] = Live(resource=replace(live[name].resource, **changes), proven=live[name].proven)
        self.process.downstream.live = live

    def take(self, name: str, number: int, tokens: int = 0) -> Granted:
        """A permit that somebody else holds."""
        found = self._ask(name, number, tokens, waits=False)
        assert isinstance(found, Granted), found
        return found

    def stand(self, name: str, number: int) -> None:
        """Somebody else waits before who comes from now on."""
        found = self._ask(name, number, 0, waits=True)
        assert isinstance(found, Refused), found

    def _ask(self, name: str, number: int, tokens: int, *, waits: bool) -> Granted | Refused:
        wants = (Want(name, tokens),)
        ask = Ask(
            member=f"{1000 - number}:1:{number}",
            tenant=1,
            priority=1,
            calls_done=0,
            since_s=time.time(),
            waits=waits,
            wants=wants,
        )
        return self.others.acquire(ask)

    def run(self, name: str = "test.call", **more: Any) -> int:
        (task,) = self.stage.submit(name, **more)
        for message in list(self.stage.tick()):
            execute.run_lease(self.process, message.lease, message.token)
        return task

    def start(self, name: str = "test.call", **more: Any) -> tuple[int, threading.Thread]:
        (task,) = self.stage.submit(name, **more)
        (message,) = self.stage.tick()
        run = (self.process, message.lease, message.token)
        thread = threading.Thread(target=execute.run_lease, args=run, daemon=True)
        thread.start()
        return task, thread

    def reading(self, name: str = LLM) -> Reading:
        found = self.others.read([name])
        assert found is not None
        return found[name]

    def in_flight(self, name: str = LLM) -> int:
        return self.reading(name).in_flight

    def facts(self, name: str = LLM) -> dict[str, float]:
        return self.process.downstream.facts()[name]

    def due_in_s(self, task: int) -> float:
        statement = "SELECT extract(epoch FROM not_before - clock_timestamp()) FROM task WHERE id = %s"
        return float(self.stage.one(statement, task))

    def output(self, task: int) -> Any:
        return self.stage.one("SELECT output FROM task_body WHERE task_id = %s", task)

    def error(self, task: int) -> dict[str, str]:
        found = self.stage.one("SELECT error FROM task_body WHERE task_id = %s", task)
        assert isinstance(found, dict)
        return found

    def why(self, task: int) -> str:
        """What the last postponement said."""
        statement = (
            "SELECT data ->> 'reason' FROM event WHERE task_id = %s AND event = 'postpone' ORDER BY seq DESC LIMIT 1"
        )
        return str(self.stage.one(statement, task))


@contextmanager
def opened(stage: Stage, url: str, *, connections: int = 2) -> Iterator[Line]:
    """A line, until the block ends."""
    with stage.process(stage.add_session(), connections=connections) as process:
        line = Line(stage, process, url)
        try:
            yield line
        finally:
            line.others.close()
