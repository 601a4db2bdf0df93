"""The leading dispatcher's look at reasons, beside a stage; and what a task answers."""

from datetime import timedelta
from typing import Any

from django.conf import settings

from harness.engine import reasons
from harness.engine import why as engine_why
from harness.engine.why import Why
from harness.store import queries
from tests.stage import Stage


class Watch:
    """See the module. The lead is held: a reader sees that somebody leads."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        stage.hold_lead()
        self.noted = reasons.Noted()
        self.held: dict[int, str] = {}  # what the last plans said

    def look(self, times: int = 1) -> reasons.Passed:
        assert self.stage.epoch is not None
        for _ in range(times):
            passed = reasons.pass_over(
                self.stage.connection,
                settings.HARNESS_TOPOLOGY,
                self.noted,
                self.held,
                self.stage.memory.course,
                epoch=self.stage.epoch,
            )
        return passed

    def why(self, task: int, *, later_s: float = 0.0) -> Why:
        public = self.stage.one("SELECT public_id FROM task WHERE id = %s", task)
        found = queries.task(self.stage.connection, public)
        assert found is not None
        now = self.stage.one("SELECT clock_timestamp()") + timedelta(seconds=later_s)
        return engine_why.why(self.stage.connection, found, now=now)

    def told(self, task: int) -> tuple[str, str]:
        """The binding reason's code and words."""
        first = self.why(task).bound[0]
        return str(first.reason.code), first.told.words

    def rows(self) -> list[tuple[Any, ...]]:
        cursor = self.stage.connection.execute("SELECT code, subject, until IS NULL FROM wait_reason ORDER BY id")
        return cursor.fetchall()
