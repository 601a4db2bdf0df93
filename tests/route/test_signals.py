"""The signals of row B3 on real processes: each gets out of range by what happens, nothing is planted.

What each level then does stands in test_pauses (throttle, pause), test_degrade, test_chain (the door).
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.engine import operate
from harness.ops.emulator import server
from harness.ops.emulator.behaviour import changed
from harness.policy.pressure import Level
from harness.store import pressure
from tests.ops.emulator.callers import emulated
from tests.route.conftest import Route
from tests.route.test_permits import LLM, talk
from tests.route.test_pressure import beat, level
from tests.stage import wait_until

BUDGET = 80  # connections, of resources.toml


class Seen:
    """What evaluations have said since: the worst of each signal, and of the level."""

    def __init__(self, route: Route) -> None:
        self.route = route
        self.worst: dict[str, float] = {}
        self.scores: dict[str, int] = {}
        self.level = Level.NORMAL

    def look(self) -> None:
        for name, one in pressure.readings(self.route.stage.connection).items():
            self.worst[name] = max(self.worst.get(name, 0.0), one.value)
            self.scores[name] = max(self.scores.get(name, 0), one.score)
        self.level = max(self.level, level(self.route) or Level.NORMAL)

    def reach(self, within_s: float, *, level: Level = Level.NORMAL, **scores: int) -> None:
        """Wait until every one of these signals has scored so much, and the level has been so high."""

        def reached() -> bool:
            self.look()
            return self.level >= level and all(self.scores.get(name, 0) >= score for name, score in scores.items())

        try:
            wait_until(reached, within_s=within_s, every_s=0.25)
        except AssertionError:
            raise AssertionError(f"wanted {scores} and {level.word}; was {self.worst}, {self.level.word}") from None


@pytest.fixture
def provider() -> Iterator[server.Running]:
    with emulated(latency_s=0.1, retry_after="none") as running:
        yield running


def test_queue_depth_and_worker_busy_ratio_rise_with_a_line_that_is_too_long(route: Route, tmp_path: Path) -> None:
    route.dispatcher()
    route.workers("tool_read", "system")
    beat(route, tmp_path)
    seen = Seen(route)
    wait_until(lambda: level(route) is Level.NORMAL, within_s=40)
    route.stage.submit("noop.sleep", n=2000, priority=1, input='{"sleep_s": 20}')
    seen.reach(60, level=Level.HIGH, queue_depth=1, worker_busy_ratio=2, p1_wait=3)
    assert seen.worst["worker_busy_ratio"] == pytest.approx(1.0, abs=0.07)


def test_llm_rate_limit_tool_error_rate_and_retry_storm_rise_with_what_the_provider_answers(
    provider: server.Running, route: Route, tmp_path: Path
) -> None:
    route.environment |= {"LLM_BASE_URL": provider.base_url, "LLM_API_KEY": "sk", "LLM_MODEL": "m-1"}
    operate.set_resource(route.stage.connection, LLM, {"limiter": "fixed"}, actor="jo", reason="a quota set too high")
    provider.emulator.behaviour = changed(provider.emulator.behaviour, {"quota": 1})
    route.dispatcher()
    route.workers("llm", "system")
    beat(route, tmp_path)
    seen = Seen(route)
    talk(route, 300)
    seen.reach(60, llm_rate_limit=2)
    assert seen.scores.get("tool_error_rate", 0) == 0, "a 429 is no failure of a tool"
    # A breaker would stop sending, and so the failures: they stay below what opens it.
    provider.emulator.behaviour = changed(provider.emulator.behaviour, {"quota": 50, "error_rate": 0.35})
    talk(route, 700)
    seen.reach(90, level=Level.HIGH, tool_error_rate=2, retry_storm=2)


def test_p95_task_latency_rises_when_tasks_take_longer_than_usual(route: Route, tmp_path: Path) -> None:
    route.dispatcher()
    route.workers("tool_read", "system")
    beat(route, tmp_path)
    seen = Seen(route)
    route.stage.submit("noop.sleep", n=40, input='{"sleep_s": 0.05}')
    wait_until(lambda: route.count("succeeded") == 40, within_s=60)
    wait_until(lambda: usual_of(route) > 0, within_s=60)
    seen.look()
    assert seen.scores["p95_task_latency"] == 0
    route.stage.submit("noop.sleep", n=24, input='{"sleep_s": 4}')
    seen.reach(60, p95_task_latency=2)


def usual_of(route: Route) -> float:
    """What the slowest of the sleeps usually take, as the machine has learned it."""
    found = route.stage.one("SELECT (state #>> '{memory,usual_s,noop.sleep,0}')::float8 FROM level")
    return found or 0.0


def test_db_connection_usage_rises_with_connections_that_are_in_a_transaction(route: Route, tmp_path: Path) -> None:
    route.workers("system")
    with contextlib.ExitStack() as opened:
        for _ in range(round(0.9 * BUDGET)):
            opened.enter_context(opened.enter_context(route.stage.open()).transaction())
        beat(route, tmp_path)
        seen = Seen(route)
        seen.reach(60, level=Level.HIGH, db_connection_usage=2)
        assert seen.worst["db_connection_usage"] >= 0.85
    (change, *_) = pressure.changes(route.stage.connection, most=1)
    assert change.signals["db_connection_usage"].score >= 2
